"""Rows with counts: their data, the range of possible counts, and how rows are split."""
