"""Calibration of predictions on rows that no member was fitted to: interval levels and out-of-distribution scores."""

#: Which counts an interval has, the default first: as few as possible, or those between two quantiles.
INTERVAL_KINDS = ("narrowest", "central")
