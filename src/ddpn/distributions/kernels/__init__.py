"""Numerics of count distributions: plain loops over counts, compiled by numba when they are first needed."""
