"""Test that no package in constraints.txt has a known vulnerability, by pip-audit in an environment of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"
#: A package with known vulnerabilities: a service that does not report them reports none at all.
CONTROL = "jinja2==2.10"


@pytest.fixture
def audit(tmp_path):
    """Ask pip-audit about each line of a list of packages."""
    python = str(tmp_path / "audit" / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "audit")], check=True)
    install = [python, "-m", "pip", "install", "-q", "pip-audit"]
    if subprocess.run(install, check=False, capture_output=True).returncode:
        pytest.skip("pip-audit cannot be installed here")

    def ask(lines, service):
        (tmp_path / "pins.txt").write_text("\n".join(lines))
        command = [python, "-m", "pip_audit", "-s", service, "-r", str(tmp_path / "pins.txt"), "--no-deps"]
        done = subprocess.run([*command, "--disable-pip", "-f", "json"], capture_output=True, text=True, timeout=180)
        packages = json.loads(done.stdout)["dependencies"] if done.stdout.startswith("{") else []
        return [
            f"{package['name']} {package['version']}: {v['id']}"
            for package in packages
            for v in package.get("vulns", [])
        ]

    return ask


@pytest.mark.slow
@pytest.mark.proof("Security", "no package of constraints.txt has a known vulnerability")
def test_no_package_has_a_known_vulnerability(audit, record_proof):
    service = next((name for name in ("pypi", "osv") if audit([CONTROL], name)), None)
    if service is None:
        pytest.skip(f"no advisory service can be reached (asked about {CONTROL}, which has known vulnerabilities)")
    lines = [line.split("+")[0] for line in CONSTRAINTS.read_text().splitlines() if not line.startswith(("#", "-"))]
    assert audit(lines, service) == []
    record_proof(f"{len(lines)} packages", "no known vulnerability")
