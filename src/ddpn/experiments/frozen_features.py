"""What the frozen part of a network gives for the rows of an experiment, computed once and kept."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ddpn.errors import InputError
from ddpn.experiments.experiment import Experiment
from ddpn.experiments.networks import fits, given_by, network_of, through, trunk_of
from ddpn.sample import Sample
from ddpn.tensor_files import fingerprint, read, write
from ddpn.training import Runtime
from ddpn.training.trainable import frozen_fingerprint

if TYPE_CHECKING:
    from ddpn.experiments.inputs import Parts


def through_trunk(experiment: Experiment, parts: "Parts", runtime: Runtime, keep: Path | None, copies: int) -> "Parts":
    """What a frozen trunk gives is the same for every method, member and epoch: computed once, where it fits."""
    trunk = trunk_of(network_of(experiment, 0, 1, classes=parts.classes)) if experiment.backbone is not None else None
    if trunk is None or not isinstance(parts.train, Sample) or not isinstance(parts.validation, Sample):
        return parts
    trunk = trunk.to(runtime.device)
    given = [parts.train.X, parts.validation.X, parts.test.X] + ([] if parts.outside is None else [parts.outside])
    # Processes that share a training must be of one mind.
    too_large = torch.zeros(1, device=runtime.device)
    too_large += not fits(parts.test.X[:1], trunk, sum(map(len, given)), runtime, copies)
    runtime.add_up(too_large)
    if too_large > 0:
        return parts
    features = [_kept(trunk, x, runtime, keep) for x in given]
    return parts._replace(
        train=Sample(features[0], parts.train.y),
        validation=Sample(features[1], parts.validation.y),
        test=Sample(features[2], parts.test.y),
        outside=features[3] if len(features) > 3 else None,
        cached=True,
        source=tuple(parts.identity),
    )


def _kept(trunk: torch.nn.Module, x: Tensor, runtime: Runtime, keep: Path | None) -> Tensor:
    """Pooled features are small: they are kept in a file that is known by rows and weights."""
    first = given_by(trunk, x[:1], runtime).cpu()
    if keep is None or first.dim() > 2:
        return through(trunk, x, runtime)
    rounded = "" if runtime.precision == "float32" else f"-{runtime.precision}"
    path = keep / f"features-{fingerprint(x):08x}-{frozen_fingerprint(trunk):08x}-{first.shape[1]}{rounded}.safetensors"
    if (found := _stored(path, len(x), first)) is not None:
        return found
    features = through(trunk, x, runtime)
    write(path, {"features": features}, {"rows": len(x)})
    return features


def _stored(path: Path, rows: int, first: Tensor) -> Tensor | None:
    """What the file holds, if it is whole and its first row is what the trunk gives here and now, but for rounding."""
    if not path.exists():
        return None
    try:
        features = read(path)[0]["features"]
    except InputError:
        return None
    good = len(features) == rows and torch.allclose(features[:1], first, rtol=1e-2, atol=1e-3)
    return features if good else None
