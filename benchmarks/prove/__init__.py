"""Proof under faults: load, hostile input, kills, full disks, jumps of the clock. `make prove` runs all of it."""
