"""The table of predictions: which columns it has, and how they are computed, for all that predict rows."""
