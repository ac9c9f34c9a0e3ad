"""Calibration of predictions on held-out rows: cdf maps, interval levels and out-of-distribution scores."""

#: Kinds of intervals: the fewest consecutive counts (default), or the counts between two quantiles.
INTERVAL_KINDS = ("narrowest", "central")
