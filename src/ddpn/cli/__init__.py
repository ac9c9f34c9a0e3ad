"""The command line: arguments and printing only.

What a command needs is imported when it runs, so that --help is there at once.
"""

from ddpn.cli.program import app, main

__all__ = ["app", "main"]
