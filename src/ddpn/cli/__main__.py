"""`python -m ddpn.cli` is the program too."""

from ddpn.cli.program import main

main()
