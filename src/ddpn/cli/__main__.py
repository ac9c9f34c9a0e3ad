"""`python -m ddpn.cli` is the program too."""

from ddpn.cli.program import main

if __name__ == "__main__":
    main()
