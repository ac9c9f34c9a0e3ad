"""The paper, declared: what is run, how it is scored, and the tables and figures it makes."""
