"""Test that the library knows nothing of the command line: arguments become options only in `ddpn.cli`."""

import ast
import re
from pathlib import Path

import ddpn

SOURCE = Path(ddpn.__file__).parent
#: An option such as --upper, not a dash within a word nor a rule of dashes.
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
#: A command of another program.
FOREIGN = "`ray start --head`"


def find_options(path: Path) -> list[str]:
    """Return the options in the strings of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [option for text in texts for option in OPTION.findall(text.replace(FOREIGN, ""))]


def test_no_string_of_the_library_has_an_option():
    options_by_path = {
        path: find_options(path) for path in SOURCE.rglob("*.py") if "cli" not in path.relative_to(SOURCE).parts
    }
    assert not {str(path): options for path, options in options_by_path.items() if options}
    assert len(options_by_path) > 150


def test_options_are_recognised_in_the_command_line():
    assert "--version" in find_options(SOURCE / "cli" / "program.py")
