"""CPU time (user and system) of starting: imports, help, `ddpn show` and a usage error, each in a new process.

    python benchmarks/cold_start.py --out benchmarks/results

One run of each fills the file cache; the median of the others counts. It is CPU time, as other processes share the
machine. Limits: `from ddpn import CountRegressor` may take at most 0.3 s more than importing torch and scikit-learn,
and every command at most 1 s. Writes startup_cpu.json and startup_cpu.md.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import recording

PYTHON = [sys.executable, "-c"]
DDPN = [sys.executable, "-m", "ddpn.cli"]
LIBRARIES, ESTIMATOR = "import torch, sklearn", "from ddpn import CountRegressor"
BEYOND = f"{ESTIMATOR}, beyond {LIBRARIES}"
COMMANDS = {
    "an empty program": [*PYTHON, ""],
    "import ddpn": [*PYTHON, "import ddpn"],
    LIBRARIES: [*PYTHON, LIBRARIES],
    ESTIMATOR: [*PYTHON, ESTIMATOR],
    "ddpn --help": [*DDPN, "--help"],
    "ddpn fit --help": [*DDPN, "fit", "--help"],
    "ddpn show": [*DDPN, "show", "model"],
    "ddpn fit with a misspelt column": [*DDPN, "fit", "table.csv", "--target", "vists", "-o", "new"],
}
#: CPU seconds, at most.
LIMITS = {BEYOND: 0.3} | {name: 1.0 for name in COMMANDS if name.startswith("ddpn")}
SETTINGS = 'members = 1\nhidden = [4]\nnumeric = "standard"\nepochs = 1\ncompare_with = ["constant"]\n'


#: As for users: with compiled modules, which the first run writes.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": ENVIRONMENT}


def cpu_seconds(command: list[str], folder: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=False, **QUIET)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def prepare(folder: Path) -> None:
    """A small table and a model that was fitted to it."""
    rows = "".join(f"{row % 7},{row % 5}\n" for row in range(60))
    (folder / "table.csv").write_text(f"visits,age\n{rows}")
    (folder / "settings.toml").write_text(SETTINGS)
    fit = [*DDPN, "fit", "table.csv", "--target", "visits", "--config", "settings.toml", "-o", "model"]
    subprocess.run(fit, cwd=folder, check=True, **QUIET)


def measure(runs: int) -> list[dict]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        # In turn, so that a busy phase of the machine affects all alike.
        times = [{what: cpu_seconds(command, folder) for what, command in COMMANDS.items()} for _ in range(runs + 1)]
    found = {what: [each[what] for each in times[1:]] for what in COMMANDS}
    rows = [{"what": what, "cpu": median(each), "least": min(each), "most": max(each)} for what, each in found.items()]
    beyond = {"what": BEYOND, "cpu": median(found[ESTIMATOR]) - median(found[LIBRARIES])}
    return [row | {"runs": runs} for row in [*rows, beyond]]


def main() -> None:
    parser = recording.parser(__doc__)
    parser.add_argument("--runs", type=int, default=7)
    args = parser.parse_args()
    args.device = "cpu"
    recording.record("startup", args, lambda _: measure(args.runs), LIMITS)


if __name__ == "__main__":
    main()
