"""The command line: arguments and printing only.

What a command needs is imported when it runs, so that --help is there at once.
"""

from ddpn.cli.program import app, main  # isort: split

from ddpn.cli import fit, model, analysis, paper  # noqa: F401, I001 - in the order of the help

__all__ = ["app", "main"]
