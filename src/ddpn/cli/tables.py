"""What commands on models show: columns, scores, a saved model."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from ddpn.workflow.roles import Column, Roles

#: Columns of a table that are listed one by one.
_SHOWN = 60


def column_table(roles: "Roles") -> "Table":
    """Every column: what it is for, its kind, its gaps, and why it is left out."""
    from rich.table import Table

    table = Table("column", "taken as", "values", "missing", "")
    table.columns[2].justify = table.columns[3].justify = "right"
    for role in ("target", "exposure", "weight"):
        if getattr(roles, role) is not None:
            table.add_row(getattr(roles, role), role, "", "", "", style="bold")
    for column in roles.columns[:_SHOWN]:
        table.add_row(*_cells(column), style="dim" if column.left_out else None)
    left = len(roles.columns) - _SHOWN
    if left > 0:
        table.add_row(f"and {left} more", "", "", "", "")
    return table


def _cells(column: "Column") -> tuple[str, ...]:
    note = f"becomes {', '.join(column.parts)}" if column.parts else ""
    note = f"left out: {column.left_out}" if column.left_out else note
    missing = f"{column.missing:,}" if column.missing else ""
    return column.name, column.kind, f"{column.distinct:,}", missing, note


def score_table(scores: "Mapping[str, Mapping[str, float]]", rows: int) -> "Table":
    """The model beside its baselines."""
    from rich.table import Table

    from ddpn.workflow.scoring import MODEL, WORDS

    table = Table(
        "", "MAE", "CRPS", "90% coverage", "90% width", title=f"Scores on {rows:,} rows", title_justify="left"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    best = min(scores, key=lambda name: scores[name]["crps"])
    for name, found in scores.items():
        shown = (number(found["mae"]), number(found["crps"]), f"{found['coverage']:.1%}", number(found["width"]))
        style = "bold" if name == best else None
        table.add_row(WORDS.get(name, name) if name != MODEL else "this model (DDPN)", *shown, style=style)
    return table


def number(value: float) -> str:
    """Four digits, and no power of ten below a billion."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def fact_table(facts: "Sequence[tuple[str, str]]") -> "Table":
    """Names and what is said of them."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, value in facts:
        table.add_row(f"[bold]{name}[/bold]", value)
    return table


def _linear(about: "Mapping[str, Any]") -> str:
    copies = about["linear_members"]
    return f"a GLM with {copies / (copies + about['members']):.0%} of the mixture" if copies else "none"


def model_facts(about: "Mapping[str, Any]") -> list[tuple[str, str]]:
    """What a saved model is and how it was trained, in words."""
    task, split = about["task"], about["task"]["split"]
    rows = ", ".join(f"{count:,} {part}" for part, count in split["rows"].items())
    trained = f"{about['epochs']} epochs in {about['seconds']:.0f} s"
    wanted = [c["name"] for c in task["roles"]["columns"] if not c["left_out"]]
    facts = [
        ("Model", f"{about['likelihood']}, {about['members']} members of widths {about['hidden'] or 'none (linear)'}"),
        *([("Linear part", _linear(about))] if about["hidden"] else []),
        ("Numbers as", about["numeric"]),
        ("Trained", trained + (", then stopped by Ctrl-C" if task["interrupted"] else "")),
        ("Rows", f"{rows}; {split['how']}"),
        ("Target", task["roles"]["target"]),
        ("Exposure", task["roles"]["exposure"] or "none"),
        ("Weight", task["roles"]["weight"] or "none"),
        ("Columns it wants", ", ".join(wanted)),
        ("Seed", str(task["plan"]["seed"])),
        ("Data", str(task.get("data", "unknown"))),
        ("Command", str(task.get("command", "unknown"))),
        ("Date", task["date"]),
        ("Versions", ", ".join(f"{name} {version}" for name, version in task["versions"].items())),
    ]
    return facts
