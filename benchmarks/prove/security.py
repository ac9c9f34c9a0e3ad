"""Known vulnerabilities of the packages in constraints.txt, by pip-audit in an environment of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.prove.proof import ROOT, Place, Result

#: A package with known vulnerabilities: a service that does not report them reports none at all.
CONTROL = "jinja2==2.10"


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
            return Result(None, "not tried", "pip-audit cannot be installed here")
    (place.folder / "control.txt").write_text(f"{CONTROL}\n")
    for service in ("pypi", "osv"):
        control = audited(python, place.folder / "control.txt", service)
        if control is not None and any(each.get("vulns") for each in control):
            break
    else:
        words = f"no advisory service can be reached: none knows the vulnerabilities of {CONTROL}"
        return Result(None, "not tried", words)
    known = audited(python, pinned(ROOT / "constraints.txt", place.folder / "pins.txt"), service)
    if known is None:
        return Result(None, "not tried", "the advisory service did not answer")
    bad = [f"{each['name']} {each['version']}: {v['id']}" for each in known for v in each.get("vulns", [])]
    return Result(not bad, f"{len(known)} packages", "; ".join(bad) or "no known vulnerability", {"known": bad})


def audited(python: Path, pins: Path, service: str) -> list[dict[str, Any]] | None:
    """What pip-audit knows about each package; None where the service does not answer."""
    command = [str(python), "-m", "pip_audit", "-s", service, "-r", str(pins), "--no-deps", "--disable-pip"]
    try:
        done = subprocess.run([*command, "-f", "json"], capture_output=True, text=True, check=False, timeout=180)
        return list(json.loads(done.stdout)["dependencies"])
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return None


def pinned(constraints: Path, target: Path) -> Path:
    """The pins of constraints.txt, one per line, without options and local builds."""
    lines = [line.split("#")[0].strip() for line in constraints.read_text().splitlines()]
    target.write_text("\n".join(line.split("+")[0] for line in lines if "==" in line and not line.startswith("-")))
    return target
