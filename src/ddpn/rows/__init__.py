"""Data rows with counts: their validation (`CountRows`), the range of possible counts (`CountRange`), and splits."""
