"""Boosted trees as members: reading tables, boosting with LightGBM, and what is learned from folds."""
