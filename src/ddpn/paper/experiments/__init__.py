"""The paper's experiments: what is run, how it is scored, and the tables and figures."""
