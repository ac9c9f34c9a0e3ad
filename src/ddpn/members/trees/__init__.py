"""Boosted trees as members: reading tables, LightGBM or scikit-learn underneath, and what is learned from folds."""
