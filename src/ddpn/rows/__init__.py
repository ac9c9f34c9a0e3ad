"""Rows with counts: what is known about them, which counts are possible, and how they are split."""
