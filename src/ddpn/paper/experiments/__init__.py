"""The paper's experiments: training, scoring, tables and figures."""
