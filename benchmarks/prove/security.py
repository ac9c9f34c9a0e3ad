"""Known vulnerabilities of the packages in constraints.txt, by pip-audit in an environment of its own."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.prove.proof import ROOT, Place, Result


def prove_packages(place: Place) -> Result:
    """Compare the pinned versions with the advisory database."""
    home = place.folder / "audit"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        done = subprocess.run(
            [str(python), "-m", "pip", "install", "-q", "pip-audit"], check=False, capture_output=True
        )
        if done.returncode:
            return Result(False, "0 packages", "not tried: pip-audit cannot be installed here")
    pins = pinned(ROOT / "constraints.txt", place.folder / "pins.txt")
    command = [str(python), "-m", "pip_audit", "-r", str(pins), "--no-deps", "--disable-pip", "-f", "json"]
    try:
        done_ = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    except subprocess.TimeoutExpired:
        return Result(False, "0 packages", "not tried: the advisory service did not answer in 180 s")
    try:
        known = json.loads(done_.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = done_.stderr.strip().splitlines()[-1:]
        return Result(
            False, "0 packages", f"not tried: the advisory service cannot be reached ({''.join(last)[-160:]})"
        )
    bad = [f"{each['name']} {each['version']}: {v['id']}" for each in known for v in each.get("vulns", [])]
    return Result(not bad, f"{len(known)} packages", "; ".join(bad) or "no known vulnerability", {"known": bad})


def pinned(constraints: Path, target: Path) -> Path:
    """The pins of constraints.txt, one per line, without options and local builds."""
    lines = [line.split("#")[0].strip() for line in constraints.read_text().splitlines()]
    target.write_text("\n".join(line.split("+")[0] for line in lines if "==" in line and not line.startswith("-")))
    return target
