"""Calibration of predictions on rows that no member was fitted to: interval levels and out-of-distribution scores."""
