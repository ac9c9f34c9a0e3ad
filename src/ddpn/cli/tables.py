"""Tables that commands print: columns, the leaderboard, a saved model. Imports no torch."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ddpn.analysis.leaderboard_table import tabulate_scores
from ddpn.cli.console import show
from ddpn.cli.wording import in_fit_options
from ddpn.rows.count_range import CountRange
from ddpn.runtime.display import as_text, describe_parts
from ddpn.storage.contents import JsonObject

if TYPE_CHECKING:
    from rich.table import Table

    from ddpn.tables.roles import Roles

#: Columns of a table that are listed one by one.
_SHOWN = 60


def terminal_table(
    headings: Sequence[str],
    rows: Iterable[tuple[Sequence[str], bool | None]],
    right: Sequence[int] = (),
    title: str | None = None,
) -> "Table":
    """A table for the terminal: the cells of each row, and whether it stands out (True for bold, None for dim).

    The columns with the numbers `right` are aligned to the right.
    """
    from rich.table import Table

    table = Table(*headings, title=title, title_justify="left")
    for number in right:
        table.columns[number].justify = "right"
    for cells, stands_out in rows:
        table.add_row(*cells, style={True: "bold", False: None, None: "dim"}[stands_out])
    return table


def column_table(roles: "Roles") -> "Table":
    """Every column: its role or kind, distinct values, missing values, and notes."""
    named = [role for role in ("target", "exposure", "weight", "censored") if getattr(roles, role) is not None]
    rows: list[tuple[tuple[str, ...], bool | None]]
    rows = [((getattr(roles, role), role, "", "", ""), True) for role in named]
    for column in roles.columns[:_SHOWN]:
        note = f"becomes {', '.join(column.parts)}" if column.parts else ""
        note = f"left out: {in_fit_options(column.left_out)}" if column.left_out else note
        cells = (column.name, column.kind, f"{column.distinct:,}", f"{column.missing:,}", note)
        rows.append((cells, None if column.left_out else False))
    rest = len(roles.columns) - _SHOWN
    rows += [((f"and {rest} more", "", "", "", ""), False)] if rest > 0 else []
    width = 5 if any(cells[-1] for cells, _ in rows) else 4
    headings = ("column", "used as", "distinct", "missing", "note")[:width]
    return terminal_table(headings, [(cells[:width], stands_out) for cells, stands_out in rows], right=(2, 3))


def leaderboard_table(found: JsonObject) -> "Table":
    """The mixture and every member, best first; members without a weight are there for comparison."""
    table = tabulate_scores(found["entries"], found["coverage"])
    rows = [
        ([as_text(cell) for cell in row], entry["weight"] is None)
        for row, entry in zip(table.rows, found["entries"], strict=True)
    ]
    title = f"{found['title']} (smaller CRPS, NLL and MAE are better)"
    return terminal_table(table.headings, rows, range(1, len(table.headings)), title)


def show_scores(found: JsonObject, model: Path, task: JsonObject) -> None:
    """The leaderboard and the verdict, and how to use or fit the one member that the verdict prefers."""
    show(leaderboard_table(found))
    typer.echo(in_fit_options(" ".join(found["verdict"]["sentences"])))
    name = found["verdict"].get("prefer")
    if name is None:
        return
    predict = shlex.join(["ddpn", "predict", str(model), "NEW.csv", "--member", name, "-o", "predictions.csv"])
    typer.echo(f"To predict with {name} alone: {predict}")
    if task.get("command", "").startswith("ddpn fit "):
        typer.echo(f"To fit {name} alone, add these options to ddpn fit: --overwrite --only {shlex.quote(name)}")


def fact_table(facts: Sequence[tuple[str, str]]) -> "Table":
    """Names and values side by side."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    for name, value in facts:
        table.add_row(name, value)
    return table


def model_facts(about: JsonObject) -> list[tuple[str, str]]:
    """What a saved model is and how it was fitted, in words."""
    task, roles = about["task"], about["task"]["roles"]
    wanted = [column["name"] for column in roles["columns"] if not column["left_out"]]
    mixed = {name: member for name, member in about["members"].items() if member["weight"]}
    members = [(f"Member {name}", member_words(member)) for name, member in mixed.items()]
    compared = ("Compared with", ", ".join(name for name in about["members"] if name not in mixed) or "nothing")
    if roles.get("groups") not in (None, *wanted):
        wanted.append(f"{roles['groups']} (groups of intervals)")
    needed = ("Columns needed", ", ".join(wanted))
    found = about.get("recalibration")
    if found is not None:
        way = "better" if found["gain"] >= 0 else "worse"
        gain = f"CRPS {way} by {abs(found['gain']):.3g} ± {found['error']:.2g} on {found['rows']:,} held-out rows"
        members.append(("Recalibration", f"{'used' if found['is_used'] else 'not used'}: {gain}"))
    if about.get("groups") is not None:
        names, by = about["groups"]["names"], about["groups"]["by"]
        members.append(("Intervals", f"calibrated in {len(names)} groups by {by}"))
    members += _range_facts(about.get("counts"), roles)
    if "plan" not in task:
        return [*members, compared, needed, ("Saved", f"in Python, by ddpn {about['ddpn']}")]
    folds = max((member["facts"].get("copies", 0) for member in mixed.values()), default=0)
    rows = describe_parts(task["split"]["rows"], folds)
    lacks = missing_words(task.get("missing", ()))
    streamed = task.get("stream")
    if streamed is not None:
        read = f"{streamed['rows']:,} rows in {streamed['files']:,} files; {streamed['sampled']:,} of them sampled"
        streamed = f"{read}; networks trained on about {streamed['streamed']:,}"
    return [
        *members,
        compared,
        ("Interrupted", f"yes, by Ctrl-C{f': {lacks}' if lacks else ''}" if task["interrupted"] else "no"),
        ("Rows", f"{rows}; split {task['split']['how']}"),
        *([("Scores", task["split"]["meaning"])] if task["split"].get("meaning") else []),
        *([("Streamed", streamed)] if streamed else []),
        *([("Search", task["tuning"]["headline"])] if "tuning" in task else []),
        *((name.capitalize(), roles[name] or "none") for name in ("target", "exposure", "weight")),
        needed,
        ("Seed", str(task["plan"]["seed"])),
        ("Data", str(task.get("data", "unknown"))),
        ("Command", str(task.get("command", "unknown"))),
        ("Date", task["date"]),
        ("Versions", ", ".join(f"{name} {version}" for name, version in task["versions"].items())),
    ]


def missing_words(missing: Sequence[str]) -> str:
    """What Ctrl-C left out of a fit, in words; nothing for a training that it ended, which has its best epochs.

    >>> missing_words(["training", "calibration", "scores"])
    'not calibrated, not scored'
    """
    words = {
        "comparisons": "not compared with every model",
        "calibration": "not calibrated",
        "scores": "not scored",
    }
    return ", ".join(words[step] for step in missing if step in words)


def _range_facts(counts: JsonObject | None, roles: JsonObject) -> list[tuple[str, str]]:
    """The range of possible counts, and how they are censored, where they are."""
    known = CountRange(**(counts or {}))
    facts = []
    if known.is_bounded:
        most = f"the column {roles.get('upper') or 'upper'}" if known.upper_per_row else known.upper
        facts.append(("Possible counts", f"{known.lower} or more" if most is None else f"{known.lower} to {most}"))
    if known.censored_above is not None:
        facts.append(("Censored", f"counts of {known.censored_above} or more"))
    elif roles.get("censored"):
        facts.append(("Censored", f"by the column {roles['censored']}"))
    return facts


def member_words(member: JsonObject) -> str:
    """The weight of a member and its facts in one line."""
    words = [f"{member['weight']:.0%} of the mixture"]
    for name, value in member["facts"].items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key}={each}" for key, each in value.items()) or "default"
        elif isinstance(value, list):
            value = ", ".join(map(str, value)) or "none"
        words += [f"{name} {value}"] if name != "best_epochs" else []
    return "; ".join(words)
