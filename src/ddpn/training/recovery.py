"""Recovery from failed steps: the failing rows are reported, and the member returns to the beginning of its epoch."""

import warnings
from collections.abc import Callable, Sequence

from torch import Tensor

from ddpn.errors import TrainingError
from ddpn.training.state import State
from ddpn.validation import at_rows

#: A member that had to be rolled back so often will not recover by itself.
_MAX_ROLLBACKS = 3


def recover(state: State, healthy: Tensor, failing_rows: Callable[[int], Sequence[int]], shows: bool = True) -> None:
    """Roll back every member that is not `healthy` (M,), and warn of it if `shows`; raise after too many failures.

    `failing_rows` finds the rows whose loss is not finite for a member as it is. Members that have stopped improving
    are rolled back in silence.
    """
    for member in (~healthy).nonzero().flatten().tolist():
        report = None if state.has_stopped(member) else _report(state, member, failing_rows(member))
        state.roll_back(member)
        if report is not None:
            _count(state, member, report, shows)


def _count(state: State, member: int, report: str, shows: bool) -> None:
    state.failures[member] += 1
    state.history.rollbacks.append(report)
    if state.failures[member] > _MAX_ROLLBACKS:
        raise TrainingError(
            f"loss must stay finite, got {state.failures[member]} failures; the last: {report}. "
            "Lower lr, or check those rows."
        )
    if shows:
        warnings.warn(report, RuntimeWarning, stacklevel=2)


def _report(state: State, member: int, rows: Sequence[int]) -> str:
    where = f"epoch {state.epoch + 1}, member {member}"
    cause = at_rows(rows) if rows else "in the gradient only"
    return f"non-finite loss in {where}, {cause}: the member was rolled back one epoch"
