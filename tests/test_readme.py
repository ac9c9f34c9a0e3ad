"""The README cannot rot: its code runs and prints what it says, its files and its commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
PICTURES = re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", README)
LINKS = [link for link in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", README) if "://" not in link]
COMMANDS = sorted(set(re.findall(r"^make (\w+)|`make (\w+)`", README, flags=re.MULTILINE)))


def test_its_code_prints_what_its_comments_say(capsys):
    code = "\n".join(PYTHON)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    said = re.findall(r"^print\(.*\)  # (.+)$", code, flags=re.MULTILINE)
    assert len(said) >= 3
    assert capsys.readouterr().out.splitlines() == said


@pytest.mark.parametrize("path", PICTURES + LINKS)
def test_what_it_points_to_exists(path):
    assert (ROOT / path).stat().st_size > 0


def test_it_shows_a_picture():
    assert PICTURES


@pytest.mark.parametrize("command", ["".join(found) for found in COMMANDS])
def test_its_commands_exist(command):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE)


def test_the_demo_prints_and_draws(tmp_path):
    script = [sys.executable, "-W", "error", str(ROOT / "examples" / "law.py")]
    pictures = [tmp_path / "new" / "law.png", tmp_path / "new" / "law.svg"]
    done = subprocess.run([*script, "--out", *map(str, pictures)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("10.000") >= 4
    assert done.stdout.splitlines()[-1] == f"Picture: {pictures[0]}, {pictures[1]}"
    assert pictures[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in pictures[1].read_text(encoding="utf-8")
