"""The paper's experiments, data sets and inputs."""
