"""Run the command line with `python -m ddpn`."""

from ddpn.cli.program import main

if __name__ == "__main__":
    main()
