"""Calibration of predictions on rows that no member was fitted to: interval levels and out-of-distribution scores."""

#: Kinds of intervals, the default first: the fewest counts, or the counts between two quantiles.
INTERVAL_KINDS = ("narrowest", "central")
