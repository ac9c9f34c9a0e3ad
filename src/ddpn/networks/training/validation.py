"""Checks of the rows a training is given, before its first step."""

from typing import Any

from torch import Tensor

from ddpn.distributions.arguments import check_counts, check_positive
from ddpn.networks.heads import Head
from ddpn.networks.training.batches import Augmented, check_any_row, check_vectors
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import listed
from ddpn.sample import Sample


def check_source(name: str, source: Any, needed: bool = True) -> None:
    """Raise an `InputError` if `source` is not a Sample, Augmented or map-style Dataset (or None, if not `needed`)."""
    is_known = isinstance(source, Sample | Augmented) or (source is None and not needed)
    is_dataset = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    if not is_known and (not is_dataset or isinstance(source, tuple | list | dict | str | Tensor)):
        kinds = "a Sample, Augmented or a Dataset with a length"
        raise InputError(f"{name} must be {kinds}, got {type(source).__name__}. Use Sample(X, y).")


def check_sample(sample: Sample, head: Head) -> None:
    """Raise an `InputError` if the parts are not tensors of one length, or hold values that `head` cannot take."""
    parts = sample.parts
    for name, part in parts.items():
        if not isinstance(part, Tensor):
            raise InputError(f"{name} must be a tensor, got {type(part).__name__}. Use torch.as_tensor.")
    check_any_row(len(sample))
    if len({len(part) for part in parts.values()}) > 1:
        found = listed([f"{name} of {len(part)}" for name, part in parts.items()])
        raise InputError(f"X, y, weight and exposure must have the same number of rows, got {found}.")
    check_vectors(sample)
    check_values(sample, head)
    if sample.weight is not None and not sample.weight.any():
        raise InputError("weight must be above 0 in some row, got 0 in all rows.")


def check_values(sample: Sample, head: Head) -> None:
    """Raise an `InputError` for counts outside the support, negative weights, and exposures that are not positive."""
    if head.support.is_discrete:
        check_counts("y", sample.y)
    _check("y", sample.y, sample.y.isfinite(), "finite")
    if sample.exposure is not None:
        check_positive("exposure", sample.exposure, "Give the time or size that each count was counted over.")
    if head.exposure_is_total:
        exposure = None if sample.exposure is None else sample.exposure.cpu().numpy()
        head.check_targets(sample.y.cpu().numpy(), exposure)
    if sample.weight is not None:
        _check("weight", sample.weight, sample.weight.isfinite(), "finite")
        _check("weight", sample.weight, sample.weight >= 0, "at least 0")


def check_exposure_in_both(train: Any, validation: Any) -> None:
    """Raise an `InputError` if one of training and validation rows has exposures and the other has none."""
    samples = [source.sample if isinstance(source, Augmented) else source for source in (train, validation)]
    has = [sample.exposure is not None for sample in samples if isinstance(sample, Sample)]
    if len(set(has)) > 1:
        with_, without = ("train", "validation") if has[0] else ("validation", "train")
        raise InputError(f"exposure must be in both or in none, got one in {with_}, none in {without}.")


def _check(name: str, values: Tensor, good: Tensor, condition: str) -> None:
    if not good.all():
        row = int((~good).nonzero()[0])
        raise InputError(f"{name} must be {condition}, got {values[row]:g} at row {row}.")
