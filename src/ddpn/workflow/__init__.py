"""Fit and evaluate models of tables, save them in folders, and predict with saved models. Nothing is printed."""
