"""Boosted trees as a member: boosting with LightGBM, its input matrices, and a file format that is safe to load."""
