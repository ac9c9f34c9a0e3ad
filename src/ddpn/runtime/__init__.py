"""Utilities for all other packages: errors, argument checks, threads, deadlines, progress bars and parallel jobs."""
