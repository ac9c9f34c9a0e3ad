"""Build the tables that commands print: columns, the leaderboard, and information about a model. Imports no torch."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ddpn.analysis.leaderboard_table import tabulate_scores
from ddpn.cli.console import format_program, print_table
from ddpn.cli.wording import render_fit_options
from ddpn.rows.count_range import CountRange
from ddpn.runtime.display import as_text, describe_row_counts
from ddpn.storage.contents import JsonObject

if TYPE_CHECKING:
    from rich.table import Table

    from ddpn.tables.roles import Roles

#: The most columns of a table that `ddpn fit` lists.
_MAX_LISTED_COLUMNS = 60


def build_table(
    headings: Sequence[str],
    rows: Iterable[tuple[Sequence[str], bool | None]],
    right: Sequence[int] = (),
    title: str | None = None,
) -> "Table":
    """Build a table for the terminal.

    `rows` has a pair (cells, style) for each row. The style is True for bold, False for normal and None for dim text.
    `right` has the positions of the columns to align right.
    """
    from rich.table import Table

    table = Table(*headings, title=title, title_justify="left")
    for number in right:
        table.columns[number].justify = "right"
    for cells, stands_out in rows:
        table.add_row(*cells, style={True: "bold", False: None, None: "dim"}[stands_out])
    return table


def build_column_table(roles: "Roles") -> "Table":
    """Build the table of all columns of a fit: their use, their numbers of distinct and missing values, and notes."""
    role_names = [role for role in ("target", "exposure", "weight", "censored") if getattr(roles, role) is not None]
    rows: list[tuple[tuple[str, ...], bool | None]]
    rows = [((getattr(roles, role), role, "", "", ""), True) for role in role_names]
    for column in roles.columns[:_MAX_LISTED_COLUMNS]:
        note = f"becomes {', '.join(column.parts)}" if column.parts else ""
        note = f"left out: {render_fit_options(column.left_out)}" if column.left_out else note
        cells = (column.name, column.kind, f"{column.distinct:,}", f"{column.missing:,}", note)
        rows.append((cells, None if column.left_out else False))
    n_unlisted = len(roles.columns) - _MAX_LISTED_COLUMNS
    rows += [((f"and {n_unlisted} more", "", "", "", ""), False)] if n_unlisted > 0 else []
    width = 5 if any(cells[-1] for cells, _ in rows) else 4
    headings = ("column", "used as", "distinct", "missing", "note")[:width]
    return build_table(headings, [(cells[:width], stands_out) for cells, stands_out in rows], right=(2, 3))


def build_leaderboard(scores: JsonObject) -> "Table":
    """Build the table of a leaderboard, sorted by CRPS with the best model first, and with the mixture in bold.

    `scores` is the leaderboard as `ddpn.analysis.leaderboard.Leaderboard.to_dict` returns it.
    """
    table = tabulate_scores(scores["entries"], scores["coverage"])
    rows = [
        ([as_text(cell) for cell in row], entry["weight"] is None)
        for row, entry in zip(table.rows, scores["entries"], strict=True)
    ]
    title = f"{scores['title']} (smaller CRPS, NLL and MAE are better)"
    return build_table(table.headings, rows, range(1, len(table.headings)), title)


def show_scores(scores: JsonObject, model: Path, task: JsonObject) -> None:
    """Print the leaderboard and a verdict on the mixture.

    If the verdict prefers one of the models in the mixture (a member), also print how to use this model alone. `scores`
    is the leaderboard (see `build_leaderboard`), `model` is the model folder, and `task` is the saved information about
    the fit.
    """
    print_table(build_leaderboard(scores))
    typer.echo(render_fit_options(" ".join(scores["verdict"]["sentences"])))
    name = scores["verdict"].get("prefer")
    if name is None:
        return
    predict = shlex.join(
        [*format_program(), "predict", str(model), "NEW.csv", "--member", name, "-o", "predictions.csv"]
    )
    typer.echo(f"To predict with {name} alone: {predict}")
    fit = shlex.join([*format_program(), "fit"])
    if task.get("command", "").startswith(f"{fit} "):
        typer.echo(f"To fit {name} alone, add these options to {fit}: --overwrite --only {shlex.quote(name)}")


def build_fact_table(facts: Sequence[tuple[str, str]]) -> "Table":
    """Build a table with two columns: names and values."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    for name, value in facts:
        table.add_row(name, value)
    return table


def describe_model(model: JsonObject) -> list[tuple[str, str]]:
    """Return information about a saved model and its fit, as pairs of a name and a value.

    `model` is the result of `ddpn.workflow.model_folder.SavedModel.describe`.
    """
    task, roles = model["task"], model["task"]["roles"]
    needed_columns = [column["name"] for column in roles["columns"] if not column["left_out"]]
    weighted = {name: member for name, member in model["members"].items() if member["weight"]}
    members = [(f"Member {name}", describe_member(member)) for name, member in weighted.items()]
    compared_fact = ("Compared with", ", ".join(name for name in model["members"] if name not in weighted) or "nothing")
    if roles.get("interval_groups") not in (None, *needed_columns):
        needed_columns.append(f"{roles['interval_groups']} (groups of intervals)")
    needed_fact = ("Columns needed", ", ".join(needed_columns))
    recalibration = model.get("recalibration")
    if recalibration is not None:
        verb = "better" if recalibration["gain"] >= 0 else "worse"
        gain = f"CRPS {verb} by {abs(recalibration['gain']):.3g} ± {recalibration['error']:.2g}"
        use = "used" if recalibration["is_used"] else "not used"
        members.append(("Recalibration", f"{use}: {gain} on {recalibration['rows']:,} held-out rows"))
    if model.get("groups") is not None:
        names, by = model["groups"]["names"], model["groups"]["by"]
        members.append(("Intervals", f"calibrated in {len(names)} groups by {by}"))
    members += _describe_count_range(model.get("counts"), roles)
    if "plan" not in task:
        return [*members, compared_fact, needed_fact, ("Saved", f"in Python, by ddpn {model['ddpn']}")]
    folds = max((member["facts"].get("copies", 0) for member in weighted.values()), default=0)
    rows = describe_row_counts(task["split"]["rows"], folds)
    skipped = describe_skipped_steps(task.get("missing", ()))
    streamed = task.get("stream")
    if streamed is not None:
        read = f"{streamed['rows']:,} rows in {streamed['files']:,} files; {streamed['sampled']:,} of them sampled"
        streamed = f"{read}; networks trained on about {streamed['streamed']:,}"
    return [
        *members,
        compared_fact,
        ("Interrupted", f"yes, by Ctrl-C{f': {skipped}' if skipped else ''}" if task["interrupted"] else "no"),
        ("Rows", f"{rows}; split {task['split']['how']}"),
        *([("Scores", task["split"]["meaning"])] if task["split"].get("meaning") else []),
        *([("Streamed", streamed)] if streamed else []),
        *([("Search", task["tuning"]["headline"])] if "tuning" in task else []),
        *((name.capitalize(), roles[name] or "none") for name in ("target", "exposure", "weight")),
        needed_fact,
        ("Seed", str(task["plan"]["seed"])),
        ("Data", str(task.get("data", "unknown"))),
        ("Command", str(task.get("command", "unknown"))),
        ("Date", task["date"]),
        ("Versions", ", ".join(f"{name} {version}" for name, version in task["versions"].items())),
    ]


def describe_skipped_steps(skipped: Sequence[str]) -> str:
    """Describe the steps of a fit that Ctrl-C skipped.

    Interrupted training is not mentioned, because a model was saved nevertheless.

    >>> describe_skipped_steps(["training", "calibration", "scores"])
    'not calibrated, not scored'
    """
    words = {
        "comparisons": "not compared with every model",
        "calibration": "not calibrated",
        "scores": "not scored",
    }
    return ", ".join(words[step] for step in skipped if step in words)


def _describe_count_range(counts: JsonObject | None, roles: JsonObject) -> list[tuple[str, str]]:
    """Return the range of possible counts and their censoring, as pairs of a name and a value.

    `counts` has the arguments of `CountRange` as a dict; None means the defaults. `roles` are the columns by role. The
    list is empty if counts are unlimited and not censored.
    """
    count_range = CountRange(**(counts or {}))
    facts = []
    if count_range.is_bounded:
        highest = f"the column {roles.get('upper') or 'upper'}" if count_range.upper_per_row else count_range.upper
        facts.append(
            (
                "Possible counts",
                f"{count_range.lower} or more" if highest is None else f"{count_range.lower} to {highest}",
            )
        )
    if count_range.censored_above is not None:
        facts.append(("Censored", f"counts of {count_range.censored_above} or more"))
    elif roles.get("censored"):
        facts.append(("Censored", f"by the column {roles['censored']}"))
    return facts


def describe_member(member: JsonObject) -> str:
    """Describe a member, a model in the mixture, in one line: its weight, and facts about its fit.

    `member` is an entry of "members" in the result of `ddpn.workflow.model_folder.SavedModel.describe`.
    """
    words = [f"{member['weight']:.0%} of the mixture"]
    for name, value in member["facts"].items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key}={setting}" for key, setting in value.items()) or "default"
        elif isinstance(value, list):
            value = ", ".join(map(str, value)) or "none"
        words += [f"{name} {value}"] if name != "best_epochs" else []
    return "; ".join(words)
