"""When a step fails: the rows that caused it are named, and the member goes back to where its epoch began."""

import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ddpn.errors import TrainingError
from ddpn.training.checkpointing import buffers_of

if TYPE_CHECKING:
    from ddpn.training.loop import Training

#: A member that had to be rolled back so often will not recover by itself.
_MAX_ROLLBACKS = 3


def mend(training: "Training", healthy: Tensor) -> None:
    """Roll back every member that is not `healthy` (M,); those that have stopped improving do so in silence."""
    for member in (~healthy).nonzero().flatten().tolist():
        story = "" if training.is_done_with(member) else _story(training, member)
        for name, now in training.updates.tensors().items():
            if now.dim() == 2:
                now[member] = training.before.tensors[name][member]
        training.buffers.put(buffers_of(training.before), member)
        if story:
            _tell(training, member, story)


def _tell(training: "Training", member: int, story: str) -> None:
    training.failures[member] += 1
    training.history.rollbacks.append(story)
    if training.failures[member] > _MAX_ROLLBACKS:
        raise TrainingError(
            f"loss must stay finite, got {training.failures[member]} failures; the last: {story}. "
            "Lower lr, or look at those rows."
        )
    if training.runtime.is_main:
        warnings.warn(story, RuntimeWarning, stacklevel=2)


def _story(training: "Training", member: int) -> str:
    where = f"epoch {training.epoch + 1}, member {member}"
    return f"non-finite loss in {where}, {_culprits(training, member)}: the member was rolled back one epoch"


def _culprits(training: "Training", member: int) -> str:
    """Rows whose loss is not finite for this member as it stands."""
    bad: list[int] = []
    first = 0
    with torch.no_grad():
        for part in training.batches.in_order():
            each = training.losses(part)[:, member]
            bad += (first + (~torch.isfinite(each)).nonzero().flatten()).tolist()
            first += len(part)
    if not bad:
        return "in its gradient alone"
    shown = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
    return f"{len(bad)} training rows: {shown}"
