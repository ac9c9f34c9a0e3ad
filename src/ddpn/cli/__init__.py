"""The command line `ddpn`. It only reads arguments and prints results; the library does everything else.

Each command imports what it needs when it runs, so that --help responds at once.
"""

from ddpn.cli.program import app, main  # isort: split

from ddpn.cli import fit, model, analysis, paper  # noqa: F401, I001 - in the order of the help

__all__ = ["app", "main"]
