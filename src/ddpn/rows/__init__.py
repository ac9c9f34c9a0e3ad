"""Rows of data with counts: `CountRows` (validated rows), `CountRange` (the possible counts), and splits of rows."""
