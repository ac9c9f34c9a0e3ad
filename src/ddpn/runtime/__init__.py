"""Building blocks of all other packages: errors, argument checks, threads, deadlines, progress bars and jobs."""
