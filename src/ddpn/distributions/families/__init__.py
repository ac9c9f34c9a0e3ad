"""Families of count distributions, a file each."""
