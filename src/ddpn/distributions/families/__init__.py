"""Families of count distributions, one per file."""
