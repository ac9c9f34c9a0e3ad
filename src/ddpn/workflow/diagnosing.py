"""Diagnose the target of a table that is read as `ddpn fit` reads it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from ddpn.sample import Sample
from ddpn.tables.roles import Roles, report_all
from ddpn.tables.row_groups import missing_sentences
from ddpn.workflow.plan import Plan
from ddpn.workflow.preparing import suspected_leaks
from ddpn.workflow.profiling import roles_of


class Target(NamedTuple):
    """The rows of a table, the roles of its columns, and warnings about them: leaks first."""

    sample: Sample
    roles: Roles
    warnings: tuple[str, ...]
    options: tuple[str, ...] = ()


def read_target(frame: Any, plan: Plan) -> Target:
    """Validate the table, and decide on every column. Imports no torch."""
    roles = roles_of(frame, plan)
    known = plan.count_range
    fractional = str(plan.model.get("fractional", "error"))
    sample = roles.sample(frame, fractional, report=lambda sentence: None, counts=known)
    notes = roles.without_target(frame.height - len(sample))
    report_all(
        [note for column in roles.columns if column.name not in plan.drop for note in column.notes], notes.append
    )
    leaks = suspected_leaks(sample, [column for column in roles.used if column.name not in plan.use])
    columns = {"--upper-column": plan.upper_column, "--censored": plan.censored}
    named = tuple(f"{name} {column}" for name, column in columns.items() if column is not None)
    notes += missing_sentences(frame, plan.group, roles.missing)
    return Target(sample, roles, (*leaks.certain, *leaks.questions, *notes), (*known.options, *named))


def diagnose_target(
    target: Target, mean_model: str, max_rows: int, seed: int, progress: Callable[[str], object] | None = None
) -> Any:
    """The `Diagnosis`, whose notes have the warnings about the table."""
    from ddpn.analysis.diagnosis import diagnose_sample  # imports torch

    name = str(target.roles.target)
    found = diagnose_sample(target.sample, name, mean_model, max_rows, seed, progress, target.options)
    return replace(found, notes=(*found.notes, *target.warnings))
