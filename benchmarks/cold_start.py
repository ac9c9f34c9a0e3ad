"""Time how long a user waits before anything happens: `ddpn --help` and `import ddpn`, each in a new process.

    python benchmarks/cold_start.py --out benchmarks/results

With hyperfine where it is installed, else with a clock around each process. Two runs first fill the file cache. What is
asked is of the median; on a shared machine the CPU's seconds and the least are nearer to what the work itself takes.
Writes startup_cpu.json and startup_cpu.md.
"""

import json
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import recording

WARM_UP = 2
COMMANDS = {
    "ddpn --help": [str(Path(sys.executable).with_name("ddpn")), "--help"],
    "import ddpn": [sys.executable, "-c", "import ddpn"],
    "from ddpn import CountRegressor": [sys.executable, "-c", "from ddpn import CountRegressor"],
    "an empty program": [sys.executable, "-c", ""],
}
#: Seconds that the project asks for, at most.
TARGETS = {"ddpn --help": 0.5, "import ddpn": 2.0}


class Runs(NamedTuple):
    """Seconds of each run by the clock, and of the CPU in the mean."""

    times: list[float]
    cpu: float


def by_hyperfine(program: str, command: list[str], runs: int) -> Runs:
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "times.json"
        options = ["--shell=none", "--style=none", f"--warmup={WARM_UP}", f"--runs={runs}", "--export-json", str(found)]
        subprocess.run([program, *options, shlex.join(command)], check=True, stdout=subprocess.DEVNULL)
        (result,) = json.loads(found.read_text())["results"]
        return Runs(result["times"], result["user"] + result["system"])


def by_clock(command: list[str], runs: int) -> Runs:
    for _ in range(WARM_UP):
        seconds(command)
    before = cpu_of_children()
    times = [seconds(command) for _ in range(runs)]
    return Runs(times, (cpu_of_children() - before) / runs)


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(runs: int) -> list[dict]:
    program = shutil.which("hyperfine")
    results = []
    for name, command in COMMANDS.items():
        times, cpu = by_hyperfine(program, command, runs) if program else by_clock(command, runs)
        row = {"what": name, "seconds": statistics.median(times), "least": min(times), "most": max(times), "cpu": cpu}
        results.append(row | {"runs": runs, "by": "hyperfine" if program else "clock"})
    return results


def main() -> None:
    parser = recording.parser(__doc__)
    parser.add_argument("--runs", type=int, default=15)
    args = parser.parse_args()
    args.device = "cpu"
    recording.record("startup", args, lambda _: measure(args.runs), TARGETS)


if __name__ == "__main__":
    main()
