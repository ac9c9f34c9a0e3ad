"""Calibration on held-out rows: recalibrated distributions, calibrated intervals and out-of-distribution flags."""

#: Kinds of intervals: the fewest consecutive counts (default), or the counts between two quantiles.
INTERVAL_KINDS = ("narrowest", "central")
