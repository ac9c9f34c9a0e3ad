"""One virtual environment per peer, made from requirements/NAME.txt, in a folder that git ignores."""

import hashlib
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements")
SECONDS = 1800


class NoEnvironmentError(Exception):
    """An environment could not be made."""


def python_of(name: str, folder: Path, own: str = "venv") -> str:
    """The interpreter of an environment, which is made first if it does not exist.

    With `own="current"` it is the interpreter that runs this: for machines without a network.
    """
    if not name or own == "current":
        return sys.executable
    wanted = REQUIREMENTS / f"{name}.txt"
    stamp, interpreter = folder / name / "requirements.sha256", folder / name / "bin" / "python"
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()
    failed = folder / f"{name}.failed"
    if stamp.exists() and stamp.read_text() == digest:
        return str(interpreter)
    if failed.exists() and failed.read_text().startswith(digest):
        raise NoEnvironmentError(failed.read_text().partition("\n")[2])
    try:
        _make(wanted, folder / name)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        reason = str(error.stderr or error).strip().splitlines()[-1:]
        failed.write_text("\n".join([digest, *reason]))
        raise NoEnvironmentError("\n".join(reason)) from None
    stamp.write_text(digest)
    return str(interpreter)


def _make(wanted: Path, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    commands = [
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"],
    ]
    commands[1] += ["--requirement", str(wanted)]
    for command in commands:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
