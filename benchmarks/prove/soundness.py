"""Known truths over many seeds: the tests of tests/soundness, which try one seed in CI."""

import os
import re
import subprocess
import sys

from benchmarks.prove.proof import ROOT, Place, Result

#: Simulated tables per truth.
SEEDS = 8


def prove_truths(place: Place) -> Result:
    """Simulate, fit, and compare with what was simulated."""
    seeds = place.times(SEEDS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", str(ROOT / "tests/soundness")]
    known = os.environ | {"DDPN_SEEDS": str(seeds), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=known)
    found = re.search(r"(\d+ failed, )?(\d+) passed", done.stdout)
    failed = re.findall(r"^FAILED (\S+)", done.stdout, flags=re.MULTILINE)
    words = found.group(0) if found else done.stdout[-200:]
    return Result(done.returncode == 0, f"{seeds} seeds", f"{words} {', '.join(failed)}".strip())
