"""The program as a whole."""

import subprocess
import sys

HELP = """
import sys
from ddpn.cli import main
try:
    main()
finally:
    print("torch" in sys.modules, "sklearn" in sys.modules, file=sys.stderr)
"""


def test_help_imports_nothing_heavy():
    command = [sys.executable, "-c", HELP, "reproduce", "--help"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--members" in found.stdout
    assert found.stderr.split() == ["False", "False"]
