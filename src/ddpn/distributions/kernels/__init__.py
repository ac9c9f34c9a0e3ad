"""Numerics of count distributions: plain loops over counts, compiled by numba on first use."""
