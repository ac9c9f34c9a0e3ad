"""The results as a page of Markdown with one figure."""

import ast
import csv
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .catalogue import Entry
from .models import MODELS, REFERENCE
from .more_splits import NOTE, Ratio, compute_ratios, describe_worst_ratio, format_ratios, select_splits
from .summary import Results, Row, average_scores, choose_headline, read_results, summarize_models

FOLDER = Path(__file__).parent
FIGURE = "tables.svg"
FIT_FIELDS = ["table", "split", "model", "status", "crps", "nll", "mae", "coverage", "own_coverage", "width"]
FIT_FIELDS += ["own_width", "fit_seconds", "fit_cpu_seconds", "predict_cpu_seconds_100k", "machine", "commit"]


def write_page(
    out: Path, tables: Path, entries: list[Entry], folder: Path, splits: int = 3, machine_note: str = ""
) -> None:
    """Write tables.md, tables.svg and tables.csv, which has the scores of every fit, from the results in `out`.

    Splits after the first `splits` have their own section. `machine_note` follows the sentence on the machine.
    """
    roles = [entry for entry in entries if entry.role != "apart"], [entry for entry in entries if entry.role == "apart"]
    every_split, apart = (read_results(out, [entry.name for entry in part]) for part in roles)
    main = select_splits(every_split, lambda split: split < splits)
    facts = {entry.name: json.loads((tables / f"{entry.name}.json").read_text(encoding="utf-8")) for entry in entries}
    folder.mkdir(parents=True, exist_ok=True)
    page = format_page(main, apart, facts, every_split, machine_note)
    (folder / "tables.md").write_text(page, encoding="utf-8")
    write_fits({**every_split, **apart}, folder / "tables.csv")
    draw_ratios(average_scores(main, "crps"), choose_headline(main), folder / FIGURE)


def write_fits(results: Results, path: Path) -> None:
    """Write one line per fit, with its scores, its times and the machine and commit of the run."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIT_FIELDS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for models in results.values():
            for fits in models.values():
                for _, fit in sorted(fits.items()):
                    writer.writerow({name: _round_score(fit.get(name)) for name in FIT_FIELDS})


def format_page(
    main: Results, apart: Results, facts: dict[str, dict[str, Any]], every_split: Results, machine_note: str = ""
) -> str:
    """Format the whole page; `every_split` has the results of `main` and of further splits."""
    rows = summarize_models(main)
    tables = [name for name in main if REFERENCE in main[name]]
    splits = sorted({split for models in main.values() for fits in models.values() for split in fits})
    more = compute_ratios(every_split, choose_headline(main), len(splits))
    parts = [
        "# Count models on real tables",
        "`make bench-tables` writes this page.",
        f"{len(tables)} tables with {len(splits)} splits each; 20% of the rows are test rows. {_PROTOCOL} "
        f"Machine: {', '.join(list_values(main, 'machine'))}. Based on commits {', '.join(list_commits(main))}. "
        f"{machine_note}",
        "The scores of every fit are in [tables.csv](tables.csv).",
        *describe_verdict(rows, choose_headline(main), more),
        format_summary(rows),
        _SUMMARY_NOTE,
        f"![CRPS of each model relative to {MODELS[REFERENCE].label}, by table]({FIGURE})",
        "## CRPS by table",
        format_scores(main, "crps", facts),
        "## Intervals, likelihood and cost",
        format_costs(main),
        _COST_NOTE,
    ]
    if more:
        further = select_splits(every_split, lambda split: split not in splits)
        note = f"{NOTE} Based on commits {', '.join(list_commits(further))}."
        parts += ["## More splits of small tables", note, format_ratios(more)]
    if apart:
        parts += ["## Length of stay and bikes", _APART_NOTE + describe_machines(apart), format_apart(apart)]
    parts += ["## Tables", format_tables(facts), "## How models are read and scored", *read_methods()]
    parts += ["## Failed and skipped fits", *describe_failures({**main, **apart})]
    return "\n\n".join(part.strip() for part in parts) + "\n"


_PROTOCOL = (
    "Scores are means over splits. Each model has the same settings for all tables (described below). The other "
    "models are called peers. The defaults of ddpn were chosen on other tables, those with the role development in "
    "`benchmarks/tables/tables.toml`. One default, the encoding of numbers by steps, was kept because of its effect on "
    "these tables (`benchmarks/notes/ablation.md`); earlier results on abalone, creditcard and budgetfood were known. "
    "The settings of two peers were changed in their favour after the first results on quakes and solder, as described "
    "below. The main score is the CRPS, which is exact for every distribution; smaller is better."
)
_SUMMARY_NOTE = (
    "Rank: the mean rank over tables, among all peers and one model of ours. CRPS ratio: the geometric mean of the "
    f"CRPS divided by that of the reference, {MODELS[REFERENCE].label}; next to it are the largest ratio and its "
    "table. Behind best peer: the largest ratio to the best peer on a table. Wins and losses: tables with a lower "
    "and with a higher CRPS than the reference. NLL: the mean difference in the negative log-likelihood. CPU: the "
    "geometric mean of the CPU time of a fit, relative to the reference."
)
_COST_NOTE = (
    "The table shows means over tables and splits. All models have the same split-conformal calibration of their "
    "intervals. Fit seconds are the wall time and the CPU time (user and system) of the fit alone, without imports; "
    "predictions are in CPU seconds per 100,000 rows, for the parameters or quantiles of the distributions."
)
_APART_NOTE = (
    "Length of stay (20,000 rows) and bikes (raw columns, no calendar day) are split into 90% of the rows for "
    "fitting and 10% for testing; the first split is also used in the project's other results (seed 1998). MAE is "
    "that of the median."
)


def describe_verdict(rows: list[Row], ours: str | None, more: list[Ratio]) -> list[str]:
    """Describe our model's rank, CRPS and cost against the peers, and where a peer wins."""
    our_row = next((row for row in rows if row.model == ours), None)
    peers = [row for row in rows if not MODELS[row.model].is_ours]
    peers = [row for row in peers if row.tables == max(peer.tables for peer in peers)]
    if our_row is None or not peers:
        return []
    ranked, best = min(peers, key=lambda row: row.rank), min(peers, key=lambda row: row.ratio)
    gain = 1.0 - our_row.ratio / best.ratio
    side = "below" if gain > 0 else "above"
    return [
        f"**{MODELS[our_row.model].label}**: mean rank {our_row.rank:.2f} (best peer: {MODELS[ranked.model].label}, "
        f"{ranked.rank:.2f}); CRPS {abs(gain):.1%} {side} the best single peer ({MODELS[best.model].label}) in the "
        f"geometric mean; at worst {our_row.behind - 1:+.1%} against the best peer of a table "
        f"({our_row.behind_table}); "
        f"{our_row.cpu_ratio:.1f} times the CPU time of the reference."
        + describe_worst_ratio(more, our_row.behind_table)
    ]


def format_summary(rows: list[Row]) -> str:
    lines = [
        "| model | rank | CRPS ratio | worst | table | behind best peer | table | wins/losses | NLL | CPU | tables |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        nll = "" if row.nll_gain is None else f"{row.nll_gain:+.3f}"
        cells = [_find_label(row.model), f"{row.rank:.2f}", f"{row.ratio:.4f}", f"{row.worst:.3f}", row.worst_table]
        cells += [f"{row.behind:.3f}", row.behind_table, f"{row.wins}/{row.losses}", nll, f"{row.cpu_ratio:.2g}"]
        lines.append("| " + " | ".join([*cells, str(row.tables)]) + " |")
    return "\n".join(lines)


def format_scores(results: Results, key: str, facts: dict[str, dict[str, Any]]) -> str:
    """Format the scores of every model and table, the best of a table in bold."""
    scores = average_scores(results, key)
    models = [name for name in MODELS if any(name in table_scores for table_scores in scores.values())]
    lines = ["| table (rows) | " + " | ".join(map(_find_label, models)) + " |", "|---" * (len(models) + 1) + "|"]
    for table, table_scores in scores.items():
        best = min(table_scores.values())
        cells = [_format_number(table_scores.get(model), best) for model in models]
        lines.append(f"| {table} ({facts[table]['rows']:,}) | {' | '.join(cells)} |")
    return "\n".join(lines)


def format_costs(results: Results) -> str:
    lines = [
        "| model | calibrated coverage | smallest | width | own coverage | width | fit s | CPU s | predict 100k |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in MODELS:
        fits = [one for models in results.values() for one in models.get(name, {}).values() if one["status"] == "done"]
        if fits:
            keys = ("coverage", "width", "own_coverage", "own_width", "fit_seconds", "fit_cpu_seconds")
            average = {key: _mean(fits, key) for key in (*keys, "predict_cpu_seconds_100k")}
            cells = [_find_label(name), f"{average['coverage']:.1%}", f"{min(one['coverage'] for one in fits):.1%}"]
            cells += [f"{average['width']:.2f}", f"{average['own_coverage']:.1%}", f"{average['own_width']:.2f}"]
            cells += [f"{average[key]:.3g}" for key in ("fit_seconds", "fit_cpu_seconds", "predict_cpu_seconds_100k")]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def format_apart(results: Results) -> str:
    lines = ["| table | model | splits | MAE | CRPS | NLL | first split MAE / CRPS | CPU s |", "|---" * 8 + "|"]
    for table, models in results.items():
        for name in MODELS:
            fits = [one for _, one in sorted(models.get(name, {}).items()) if one["status"] == "done"]
            if fits:
                nll = "" if fits[0]["nll"] is None else f"{_mean(fits, 'nll'):.3f}"
                first = f"{fits[0]['mae']:.3f} / {fits[0]['crps']:.4f}" if fits[0]["split"] == 0 else ""
                cells = [
                    table,
                    _find_label(name),
                    str(len(fits)),
                    f"{_mean(fits, 'mae'):.3f}",
                    f"{_mean(fits, 'crps'):.4f}",
                ]
                lines.append("| " + " | ".join([*cells, nll, first, f"{_mean(fits, 'fit_cpu_seconds'):.3g}"]) + " |")
    return "\n".join(lines)


def format_tables(facts: dict[str, dict[str, Any]]) -> str:
    lines = ["| table | counts | source | rows | columns | mean | variance / mean | left out, why |", "|---" * 8 + "|"]
    for name, fact in facts.items():
        left = f"{', '.join(fact['drop'])}: {fact['why']}" if fact["drop"] else ""
        ratio = fact["variance"] / fact["mean"]
        numbers = [f"{fact['rows']:,}", str(len(fact["columns"])), f"{fact['mean']:.2f}", f"{ratio:.2f}"]
        lines.append("| " + " | ".join([name, fact["about"], fact["source"], *numbers, left]) + " |")
    return "\n".join(lines)


def read_methods() -> Iterable[str]:
    """Yield the docstrings of modules: how quantiles are read, how models are scored, what each adapter does."""
    for name in ("predictions", "scoring"):
        yield _read_docstring(FOLDER / f"{name}.py")
    used = dict.fromkeys(model.adapter for model in MODELS.values() if not model.is_ours)
    yield "\n".join(
        f"- `{name}`: {' '.join(_read_docstring(FOLDER / 'adapters' / f'{name}.py').split())}" for name in used
    )


def describe_failures(results: Results) -> Iterable[str]:
    """Describe every reason of a failure, with its model and how often it occurred."""
    frequencies: Counter[tuple[str, str, str]] = Counter()
    where: dict[tuple[str, str, str], list[str]] = {}
    for table, models in results.items():
        for model, fits in models.items():
            for split, fit in fits.items():
                if fit["status"] != "done":
                    key = (model, fit["status"], fit["reason"].splitlines()[-1])
                    frequencies[key] += 1
                    where.setdefault(key, []).append(f"{table} {split}")
    if not frequencies:
        return ["None."]
    lines = []
    for key, number in frequencies.items():
        model, status, reason = key
        examples = ", ".join(where[key][:6]) + (", ..." if number > 6 else "")
        # Two backticks on each side: the reason may contain one.
        lines.append(f"- {_find_label(model)}: {number} {status} ({examples}): `` {reason} ``")
    return ["\n".join(lines)]


def describe_machines(results: Results) -> str:
    """Return a warning if fits ran on different machines, else ""."""
    machines = list_values(results, "machine")
    if len(machines) < 2:
        return ""
    join_words = f"({'; '.join(machines)}; based on commits {', '.join(list_commits(results))})"
    return f" Not all fits ran on the same machine {join_words}: CPU seconds can be compared only within one."


def list_commits(results: Results) -> list[str]:
    """List the commits that fits are based on."""
    return sorted({name.removesuffix("-dirty") for name in list_values(results, "commit")})


def list_values(results: Results, key: str) -> list[str]:
    """List the distinct values of one field in the descriptions of the fits."""
    fits = (one for models in results.values() for by_split in models.values() for one in by_split.values())
    return sorted({one.get(key, "unknown") for one in fits})


def draw_ratios(crps: dict[str, dict[str, float]], ours: str | None, path: Path) -> None:
    """Draw the CRPS relative to the reference: a line per table, a point per model, ours on top."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    tables = [table for table, scores in crps.items() if REFERENCE in scores]
    models = [name for name in MODELS if not MODELS[name].is_ours or name == ours]
    figure, axes = plt.subplots(figsize=(8, 0.4 * len(tables) + 1.6), layout="constrained")
    for number, model in enumerate(models):
        points = [(crps[t][model] / crps[t][REFERENCE], i) for i, t in enumerate(tables) if model in crps[t]]
        if points:
            # Colours come again after ten models.
            style = {"marker": "o" if number < 10 else "^", "color": f"C{number % 10}", "alpha": 0.7}
            style = {"marker": "D", "color": "black", "zorder": 3} if model == ours else style
            axes.scatter(*zip(*points, strict=True), label=MODELS[model].label.replace("`", ""), s=28, **style)
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(tables)), tables)
    axes.set_xlim(right=min(1.5, axes.get_xlim()[1]))
    axes.invert_yaxis()
    axes.set_xlabel(f"CRPS relative to\n{MODELS[REFERENCE].label}\n(points beyond 1.5 are not shown)")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _find_label(model: str) -> str:
    return MODELS[model].label


def _format_number(value: float | None, best: float) -> str:
    if value is None:
        return ""
    return f"**{value:.4g}**" if value == best else f"{value:.4g}"


def _round_score(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _mean(fits: list[dict[str, Any]], key: str) -> float:
    return sum(one[key] for one in fits) / len(fits)


def _read_docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
