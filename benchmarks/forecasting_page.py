"""The page of results of `forecasting.py`: a summary, means over seeds, and every seed."""

from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Any

import pandas as pd
from forecasting_models import LOG_LINK, MODELS, OUTPUTS

OURS, THEIRS = OUTPUTS
#: Rows of the same model and series, one per seed.
Cells = dict[tuple[str, str], pd.DataFrame]
#: What the series are, for readers of the table.
SHOWN = {
    "under-dispersed": "simulated, variance = mean / 6",
    "over-dispersed": "simulated Negative Binomial",
    "intermittent": "simulated, mostly zeros",
    "bike rentals": "bike rentals per hour of the day",
}
TITLE = "# Double Poisson and Negative Binomial in forecasting libraries\n"
INTRODUCTION = """
`python benchmarks/forecasting.py` writes this page ({versions}; one thread). Every pair of outputs has the same
network, seed, training series and number of training steps: {epochs} epochs of {batches} batches of {batch}
windows, one hidden layer of {hidden} units. The score is the CRPS of the {horizon} days after the {before} days of
training, estimated from {samples} sample paths, in the mean over days, series and seeds; smaller is better. No
forecast has an expected score below that of the true distribution, from which simulated counts were drawn; on so
few days one can be below it by chance.
"""
LINK = """
## darts: distribution and link

To tell the effect of the distribution from that of the link (mu = e^raw or softplus(raw)), this table has darts's
Negative Binomial with both.

| series | Double Poisson, log link | Negative Binomial, log link | Negative Binomial, softplus | true distribution |
|---|---|---|---|---|"""
NOTE = """
The link of our likelihood for darts and the rule for scales (GluonTS, PyTorch Forecasting) were chosen with the seeds 0
and 1 of these series, which are not in the tables; the bike rentals, however, are the same counts for every seed.
Networks are small, trained for seconds and not tuned: the comparison is between outputs, not between libraries."""
SEEDS = """
## Every seed

Seconds are CPU time of fit and forecast: Double Poisson, Negative Binomial and, for darts, the Negative Binomial with a
log link.

| model | series | seed | Double Poisson | Negative Binomial | the same, log link | true distribution | seconds |
|---|---|---|---|---|---|---|---|"""


def page(rows: Sequence[dict[str, Any]], series: Sequence[str]) -> str:
    """The page, of rows as `forecasting.measured` gives them and the names of the series in their order."""
    cells = {(model, name): _cell(rows, model, name) for model in MODELS for name in series}
    cells = {key: cell for key, cell in cells.items() if len(cell)}
    sizes = rows[0]["settings"]
    versions = {name: number for row in rows for name, number in row["settings"]["versions"].items()}
    shown = ", ".join(f"{name} {number}" for name, number in sorted(versions.items()))
    text = INTRODUCTION.format(**sizes | {"versions": shown, "before": sizes["steps"] - sizes["horizon"]})
    parts = [TITLE, _paragraph(text), ""], _means(cells), [LINK], _links(cells), [NOTE, SEEDS], _seeds(cells)
    return "\n".join(line for part in parts for line in part) + "\n"


def _means(cells: Cells) -> Iterable[str]:
    yield "<!-- summary -->"
    yield "| model | series | Double Poisson | Negative Binomial | difference | seeds won | true distribution |"
    yield "|---|---|---|---|---|---|---|"
    for (model, name), cell in cells.items():
        mean = cell.mean(numeric_only=True)
        scores, difference = _scores(mean, OUTPUTS), f"{mean[OURS] / mean[THEIRS] - 1.0:+.1%}"
        wins = f"{(cell[OURS] < cell[THEIRS]).sum()} of {len(cell)}"
        yield f"| {model} | {SHOWN[name]} | {' | '.join(scores)} | {difference} | {wins} | {_truth(mean)} |"
    yield ""
    yield from _verdict(cells)
    yield "<!-- end of the summary -->"


def _links(cells: Cells) -> Iterable[str]:
    for (_, name), cell in cells.items():
        if LOG_LINK in cell:
            mean = cell.mean(numeric_only=True)
            yield f"| {SHOWN[name]} | {' | '.join(_scores(mean, (OURS, LOG_LINK, THEIRS)))} | {_truth(mean)} |"


def _seeds(cells: Cells) -> Iterable[str]:
    for (model, name), cell in cells.items():
        outputs = [output for output in (*OUTPUTS, LOG_LINK) if output in cell]
        for _, row in cell.iterrows():
            scores = [*_scores(row, outputs), ""][:3]
            seconds = ", ".join(f"{row[f'{output}, s']:.0f}" for output in outputs)
            yield f"| {' | '.join([model, SHOWN[name], str(row['seed']), *scores, _truth(row), seconds])} |"


def _cell(rows: Sequence[dict[str, Any]], model: str, series: str) -> pd.DataFrame:
    return pd.DataFrame([row for row in rows if (row["model"], row["series"]) == (model, series)])


def _scores(row: Any, outputs: Sequence[str]) -> list[str]:
    """Scores with three decimals, the best in bold; more than one if they look the same."""
    shown = [f"{row[output]:.3f}" for output in outputs]
    best = min(shown, key=float)
    return [f"**{score}**" if score == best else score for score in shown]


def _truth(row: Any) -> str:
    return f"{row['truth']:.3f}" if "truth" in row else ""


def _verdict(cells: Cells) -> Iterable[str]:
    """What the seeds of each row agree on, and what the link does in darts, in words."""
    wins = [cell[OURS] < cell[THEIRS] for cell in cells.values()]
    ours, theirs = sum(win.all() for win in wins), sum(not win.any() for win in wins)
    seeds = max(len(win) for win in wins)
    yield _paragraph(
        "Differences below 0, and seeds won, are in favour of the Double Poisson. It is better for every seed in "
        f"{ours} of {len(wins)} rows, the Negative Binomial in {theirs}; in {len(wins) - ours - theirs} rows seeds "
        f"disagree. By chance alone, {seeds} seeds would agree in {2.0 ** (1 - seeds):.0%} of the rows: small "
        "differences decide nothing."
    )
    both = [cell.mean(numeric_only=True) for cell in cells.values() if LOG_LINK in cell]
    if both:
        lost = sum(mean[LOG_LINK] < mean[OURS] for mean in both)
        yield ""
        yield _paragraph(
            "Differences in darts include that of the link, log for our likelihood and softplus for darts's own. With "
            "a log link, which darts does not offer, its Negative Binomial is better than the Double Poisson in "
            f"{lost} of {len(both)} rows, in the mean over seeds."
        )


def _paragraph(text: str) -> str:
    return fill(text.strip(), width=120, break_on_hyphens=False)
