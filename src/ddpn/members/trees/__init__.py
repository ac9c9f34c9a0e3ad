"""Boosted trees as a member: boosting with LightGBM, the matrices that it needs, and safe files for trees."""
