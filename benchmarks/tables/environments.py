"""One virtual environment per peer, made from requirements/NAME.txt, in a folder that git ignores."""

import hashlib
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements")
SECONDS = 1800


class NoEnvironmentError(Exception):
    """The environment of a model could not be made."""


def find_python(name: str, folder: Path, python: str = "venv") -> str:
    """Return the interpreter of an environment; make the environment if it does not exist.

    With `python="current"`, return the interpreter that runs the benchmark: for machines without a network.
    """
    if not name or python == "current":
        return sys.executable
    requirements = REQUIREMENTS / f"{name}.txt"
    stamp, interpreter = folder / name / "requirements.sha256", folder / name / "bin" / "python"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    failed = folder / f"{name}.failed"
    if stamp.exists() and stamp.read_text() == digest:
        return str(interpreter)
    if failed.exists() and failed.read_text().startswith(digest):
        raise NoEnvironmentError(failed.read_text().partition("\n")[2])
    try:
        _make_environment(requirements, folder / name)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        reason = str(error.stderr or error).strip().splitlines()[-1:]
        failed.write_text("\n".join([digest, *reason]))
        raise NoEnvironmentError("\n".join(reason)) from None
    stamp.write_text(digest)
    return str(interpreter)


def _make_environment(requirements: Path, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    commands = [
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"],
    ]
    commands[1] += ["--requirement", str(requirements)]
    for command in commands:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
