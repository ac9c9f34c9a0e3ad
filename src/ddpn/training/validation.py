"""What a training is given, looked at before its first step: a law would answer nonsense to it, or learn from it."""

from typing import Any

from torch import Tensor

from ddpn.distributions.arguments import check_counts, check_positive
from ddpn.errors import InputError
from ddpn.heads import Head
from ddpn.training.batches import Changing, Rows


def check_source(name: str, source: Any, needed: bool = True) -> None:
    """Rows, or something with a length whose items can be asked for; nothing at all where it is not `needed`."""
    is_known = isinstance(source, Rows | Changing) or (source is None and not needed)
    is_dataset = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    if not is_known and (not is_dataset or isinstance(source, tuple | list | dict | str | Tensor)):
        raise InputError(
            f"{name} must be Rows, Changing or a data set with a length, got {type(source).__name__}. Use Rows(x, y)."
        )


def check_values(rows: Rows, head: Head) -> None:
    """Counts where the law has no others, weights of at least 0, exposures above 0."""
    if head.support.is_discrete:
        check_counts("y", rows.y)
    _check("y", rows.y, rows.y.isfinite(), "finite")
    if rows.exposure is not None:
        check_exposure(rows.exposure)
    if rows.weight is not None:
        _check("weight", rows.weight, rows.weight.isfinite(), "finite")
        if (rows.weight < 0).any():
            row = int((rows.weight < 0).nonzero()[0])
            raise InputError(
                f"weight must be at least 0, got {rows.weight[row]:g} at row {row}. Drop or mend such rows."
            )


def check_exposure(exposure: Tensor) -> None:
    """Above 0: it multiplies what is expected of a row."""
    check_positive("exposure", exposure, "Give the time or size that each count was counted over.")


def check_weighed(weight: Tensor | None) -> None:
    """Some row counts."""
    if weight is not None and not weight.any():
        raise InputError("weight must be above 0 in some row, got 0 in all. Give the rows that should count a 1.")


def check_alike(train: Any, validation: Any) -> None:
    """A rate is judged by rates, a count by counts."""
    has = [rows.exposure is not None for rows in (_rows(train), _rows(validation)) if rows is not None]
    if len(set(has)) > 1:
        with_, without = ("train", "validation") if has[0] else ("validation", "train")
        raise InputError(f"exposure must be in both or in none, got one in {with_}, none in {without}. Add it there.")


def _rows(source: Any) -> Rows | None:
    source = source.rows if isinstance(source, Changing) else source
    return source if isinstance(source, Rows) else None


def _check(name: str, values: Tensor, good: Tensor, condition: str) -> None:
    if not good.all():
        row = int((~good).nonzero()[0])
        raise InputError(f"{name} must be {condition}, got {values[row]:g} at row {row}. Drop or mend such rows.")
