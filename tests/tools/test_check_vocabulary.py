"""The vocabulary check finds what it should in every kind of file, and nothing in code or fixed phrases."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "check_vocabulary.py"
spec = importlib.util.spec_from_file_location("check_vocabulary", SCRIPT)
check_vocabulary = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_vocabulary)

WORDS = {"law": "distribution", "whole number": "integer"}


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("page.md", "One law.\n\nA Law again.\n", [(1, "law"), (3, "law")]),
        ("page.md", "A whole\nnumber.", [(1, "whole number")]),
        ("page.md", "`law` and\n\n```python\nlaw = 1\n```\n[text](law.md)", []),
        ("page.md", "The law of large numbers; lawful; flaw.", []),
        ("code.py", 'law = 1  # a law\nraise ValueError(f"no law {law}")\n', [(2, "law")]),
        ("code.py", '"""First line.\n\nThe law.\n"""\n', [(3, "law")]),
        ("data.toml", 'title = "x"\n[part]\nnotes = ["the law"]\n', [(3, "law")]),
    ],
)
def test_finds(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content)
    assert [(find.line, find.word) for find in check_vocabulary.finds(tmp_path / name, WORDS)] == expected


def test_every_word_of_the_list_has_a_replacement():
    words = check_vocabulary.vocabulary()
    assert words["law"] == "distribution"
    assert all(instead.strip() for instead in words.values())


def test_the_list_is_checked_against_the_pages_and_the_source():
    names = {str(path.relative_to(check_vocabulary.ROOT)) for path in check_vocabulary.files()}
    assert {"README.md", "docs/first-afternoon.md", "src/ddpn/cli/model.py"} <= names
