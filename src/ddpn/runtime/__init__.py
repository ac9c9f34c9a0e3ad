"""What every part of ddpn stands on: errors, checks of arguments, threads, clocks, progress, extras, and jobs."""
