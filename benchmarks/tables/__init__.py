"""Count models side by side on real tables, each peer in its own environment: `python -m benchmarks.tables`."""
