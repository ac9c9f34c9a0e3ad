"""Boosted trees as members: boosting with LightGBM in folds, and the matrices and files of trees."""
