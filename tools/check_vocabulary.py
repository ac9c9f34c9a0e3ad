"""Find words in user-facing text that have a plainer replacement: the list is tools/vocabulary.txt.

    python tools/check_vocabulary.py

User-facing are the Markdown pages of the repository, the strings and docstrings of src/ (f-strings included, comments
and identifiers not), the texts of its TOML files, and the examples. Prints one line per find and exits with status 1 if
there is any. Code in Markdown is not read.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
VOCABULARY = Path(__file__).with_name("vocabulary.txt")
#: What is quoted stays as its authors wrote it: titles, names of files and data, phrases of mathematics.
FIXED = re.compile(r"law of (the )?(large numbers|total \w+|iterated \w+)|power laws?|[\w-]*Lawn[\w-]*", re.IGNORECASE)
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`|\]\([^)]*\)|!\[", re.MULTILINE | re.DOTALL)


class Text(NamedTuple):
    """A piece of text, and the line of the file it begins at."""

    line: int
    content: str


class Find(NamedTuple):
    """A word of the list, where it stands and what to write instead."""

    path: Path
    line: int
    word: str
    instead: str


def vocabulary(path: Path = VOCABULARY) -> dict[str, str]:
    """Replacements by word."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    pairs = [line.split(" -> ", maxsplit=1) for line in lines if line and not line.startswith("#")]
    return {word.lower(): instead for word, instead in pairs}


def markdown_text(source: str) -> Iterator[Text]:
    """All of a page but its code and its links."""
    yield Text(1, _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), source))


def python_text(source: str) -> Iterator[Text]:
    """String constants, docstrings and the constant parts of f-strings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield Text(node.lineno, node.value)


def toml_text(source: str) -> Iterator[Text]:
    """Every string value, at any depth."""

    def strings(value: object) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            for part in value.values() if isinstance(value, dict) else value:
                yield from strings(part)

    for text in strings(tomllib.loads(source)):
        yield Text(source[: max(source.find(text.splitlines()[0] if text else ""), 0)].count("\n") + 1, text)


READERS = {".md": markdown_text, ".py": python_text, ".toml": toml_text}


def files() -> list[Path]:
    """The files whose text users read."""
    pages = [*ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md"), *(ROOT / "docs").rglob("*.md")]
    code = [path for folder in ("src", "examples") for path in (ROOT / folder).rglob("*") if path.suffix in READERS]
    return sorted(path for path in [*pages, *code] if "_build" not in path.parts)


def finds(path: Path, words: dict[str, str]) -> list[Find]:
    """Every word of the list in the text of one file."""
    pattern = re.compile(rf"\b({'|'.join(re.escape(word) for word in words)})\b".replace(r"\ ", r"\s+"), re.IGNORECASE)
    found = []
    for line, content in READERS[path.suffix](path.read_text(encoding="utf-8")):
        plain = FIXED.sub(lambda fixed: " " * len(fixed[0]), content)
        for match in pattern.finditer(plain):
            word = " ".join(match[0].lower().split())
            found.append(Find(path, line + plain[: match.start()].count("\n"), word, words[word]))
    return found


def main() -> int:
    """Print every find; the exit status."""
    words = vocabulary()
    found = [find for path in files() for find in finds(path, words)]
    for path, line, word, instead in found:
        print(f"{path.relative_to(ROOT)}:{line}: '{word}', write: {instead}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
