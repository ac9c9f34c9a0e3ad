"""The whole job on data that ship with us: fit, compare with what people use today, write a report.

Run `make demo`. Two tables are written to demo/ as a user would have them, and the commands that are shown are the
commands that run: counts of visits to a doctor (the RAND health insurance experiment, inside statsmodels), and the
simulation of the paper's Figure 1, of which the true law is known.
"""

import argparse
import os
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

#: As shells have it: 128 + SIGINT.
INTERRUPTED = 130
#: The truth of the simulation is compared at so many places, evenly spread.
PLACES = 500
#: Beyond this count no law of the simulation has mass that could be seen.
LAST_COUNT = 100
NAMES = {"ddpn": "DDPN ensemble", "constant": "constant law", "poisson_glm": "Poisson GLM"}
NAMES |= {"poisson_boosting": "Poisson gradient boosting", "truth": "the true law itself"}


def main() -> None:
    options = arguments()
    # On a busy machine threads that wait for each other in a loop take ten times as long; read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.stdout.reconfigure(line_buffering=True)  # in step with what commands say on standard error, also into a pipe
    start = time.perf_counter()
    try:
        run(options.out, options.fast)
    except KeyboardInterrupt:
        print("\nStopped. Run it again: it needs no cleaning up.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    print(f"Done in {time.perf_counter() - start:.0f} seconds.")


def run(out: Path, fast: bool = False) -> None:
    """Both tables; `fast` gives small models of a part of the rows."""
    title("Visits to a doctor in a year: the RAND health insurance experiment")
    out.mkdir(parents=True, exist_ok=True)
    small = ("--epochs", "2", "--members", "2") if fast else ()
    ddpn(
        "fit",
        str(visits(out, 20 if fast else 1)),
        "--target",
        "mdvis",
        *small,
        "-o",
        str(out / "visits.model"),
        "--overwrite",
    )
    report = ("report", str(out / "visits.model"), str(out / "visits.csv"))
    ddpn(*report, "-o", str(out / "report.html"), "--overwrite")

    title("A simulation whose truth is known: Figure 1 of the paper")
    table = waves(out)
    to_wave = ("-o", str(out / "wave.model"), "--overwrite")
    ddpn("fit", str(table), "--target", "y", "--split-column", "part", *small, *to_wave)
    report = ("report", str(out / "wave.model"), str(table))
    ddpn(*report, "-o", str(out / "wave.html"), "--overwrite")
    print("\nAgainst the true law, on average over x (what no model can avoid is taken off):")
    show(truth_table(out / "wave.model"))
    title("Reports to open in a browser")
    for name in ("report.html", "wave.html"):
        print(f"{out / name}   {(out / name).resolve().as_uri()}")


def title(words: str) -> None:
    print(f"\n=== {words} ===", flush=True)


def ddpn(*words: str) -> None:
    """Say a command and run it, in this process: torch is loaded once."""
    from typer import Abort

    from ddpn.cli import app

    print(f"\n$ ddpn {shlex.join(words)}", flush=True)
    # A model remembers the command that made it.
    given, sys.argv = sys.argv, ["ddpn", *words]
    try:
        code = app(list(words), standalone_mode=False)
    except Abort:  # Ctrl-C before the command itself could answer it
        raise KeyboardInterrupt from None
    finally:
        sys.argv = given
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        sys.exit(code)


def visits(out: Path, every: int = 1) -> Path:
    """The table of visits as a file, or one row of so many."""
    from statsmodels.datasets import randhie

    path = out / "visits.csv"
    randhie.load_pandas().data[::every].to_csv(path, index=False)
    return path


def waves(out: Path) -> Path:
    """Draws of the simulation as a file, with a column that says what each row is for."""
    import numpy as np

    from ddpn.datasets import simulate

    drawn = simulate("wave")
    part = np.empty(len(drawn.y), dtype=object)
    for name, rows in asdict(drawn.split).items():
        part[rows] = name
    lines = [f"{x!r},{y},{name}" for x, y, name in zip(drawn.x.tolist(), drawn.y.tolist(), part, strict=True)]
    path = out / "wave.csv"
    path.write_text("\n".join(["x,y,part", *lines]) + "\n", encoding="utf-8")
    return path


def truth_table(model: Path) -> Any:
    """Every model beside the law that the counts were drawn from."""
    from rich.table import Table

    table = Table("", "CRPS", "above the truth's", "coverage of 90% intervals", "error of the variance")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, (crps, gap, coverage, error) in against_truth(model).items():
        table.add_row(NAMES[name], f"{crps:.4f}", f"{gap:.4f}", f"{coverage:.1%}", f"{error:.0%}")
    return table


def against_truth(path: Path, places: int = PLACES) -> dict[str, tuple[float, float, float, float]]:
    """Expected CRPS, its excess, expected coverage and the relative error of the variance, by model.

    Over y from the true law F, a law G has the expected CRPS of F plus the sum over counts of (G - F)^2: so no draw is
    needed, and the excess is exact. A model's variance is its aleatoric part, which is to be that of the truth.
    """
    import polars
    import torch

    from ddpn.datasets.simulations import SIMULATIONS
    from ddpn.workflow.model_folder import load

    wave, folder = SIMULATIONS["wave"], load(path)
    x = torch.linspace(wave.low, wave.high, places, dtype=torch.float64)
    frame, truth = polars.DataFrame({"x": x.numpy()}), wave.distribution(x)
    laws = {"truth": truth, "ddpn": folder.model.predict_distribution(frame)}
    laws |= {name: baseline.law(frame, None) for name, baseline in folder.baselines.items()}
    counts = torch.arange(float(LAST_COUNT), dtype=torch.float64).unsqueeze(1)
    known = truth.cdf(counts)
    unavoidable = (known * (1.0 - known)).sum(0)
    found = {}
    for name, law in laws.items():
        gap = (law.cdf(counts) - known).square().sum(0)
        low, high = law.interval(0.9)
        held = truth.cdf(high) - torch.where(low > 0, truth.cdf((low - 1).clamp(min=0)), 0.0)
        variance = law.aleatoric if name == "ddpn" else law.variance
        error = (variance - truth.variance).abs().mean() / truth.variance.mean()
        means = ((unavoidable + gap).mean(), gap.mean(), held.mean(), error)
        found[name] = tuple(value.item() for value in means)
    return found


def show(table: Any) -> None:
    from ddpn.cli.console import show as shown

    shown(table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for tables, models and reports")
    parser.add_argument(
        "--fast", action="store_true", help="fewer rows, two epochs of two members: to see that it runs"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
