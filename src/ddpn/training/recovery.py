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
        if state.has_stopped(member):
            state.roll_back(member)
            continue
        rows = failing_rows(member)
        state.roll_back(member)
        where = f"epoch {state.epoch + 1}, member {member}, {at_rows(rows) if rows else 'in the gradient only'}"
        report = f"non-finite loss in {where}: the member was rolled back one epoch"
        state.failures[member] += 1
        state.history.rollbacks.append(report)
        if state.failures[member] > _MAX_ROLLBACKS:
            failures = f"{state.failures[member]} failures; the last: {report}"
            raise TrainingError(f"loss must stay finite, got {failures}. Lower lr, or check those rows.")
        if shows:
            warnings.warn(report, RuntimeWarning, stacklevel=2)
