"""Networks of several copies of a member, each with inputs of its own, that are trained as one model."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ddpn.networks.model import CountModel
from ddpn.networks.training import OwnRows
from ddpn.sample import Sample


def side_by_side(copies: Sequence[tuple[Any, Any]], each: int) -> OwnRows:
    """Training and validation rows of copies with so many networks each; inputs that only other copies have are 0."""
    width, samples, end = max(train.X.shape[1] for train, _ in copies), [], 0
    positions: tuple[list[Tensor], list[Tensor]] = [], []
    for copy in copies:
        for sample, own in zip(copy, positions, strict=True):
            more = torch.zeros(len(sample), width - sample.X.shape[1])
            samples.append(sample.replace(X=torch.cat([sample.X, more], dim=1)))
            own += [torch.arange(end, end + len(sample))] * each
            end += len(sample)
    return OwnRows(_joined(samples), *positions)


def _joined(samples: Sequence[Sample]) -> Sample:
    names = samples[0].parts
    return Sample(**{name: torch.cat([sample.parts[name] for sample in samples]) for name in names})


def put_networks(model: CountModel, own: slice, part: CountModel) -> None:
    """Copy networks into their places among those that are trained together.

    Inputs that only other copies have come last. They are 0 for these networks, and so are their weights: a copy starts
    as if it were alone, whatever inputs others have.
    """
    whole = model.state_dict()
    for name, tensor in part.state_dict().items():
        whole[name][own] = 0.0
        whole[name][own][tuple(map(slice, tensor.shape))] = tensor


def take_networks(model: CountModel, own: slice, part: CountModel) -> None:
    """The inverse of `put_networks`."""
    shapes = {name: tensor.shape for name, tensor in part.state_dict().items()}
    part.load_state_dict({name: t[own][tuple(map(slice, shapes[name]))] for name, t in model.state_dict().items()})
