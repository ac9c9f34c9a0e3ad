"""The network of an experiment, and the features that its frozen part computes once for all runs."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ddpn.networks.backbones import BACKBONES, MLP
from ddpn.networks.training import Runtime
from ddpn.networks.training.weights import frozen_fingerprint
from ddpn.paper.experiments.experiment import Experiment
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.progress import progress_bar
from ddpn.storage.tensor_files import fingerprint, read, write

#: The share of the memory that features may fill.
_SHARE = 0.4


def network_of(experiment: Experiment, width: int, members: int, *, classes: int = 0) -> Any:
    """The backbone that an experiment declares, or else an MLP with `width` inputs.

    The declared `config`, if any, has random weights: it is used without `pretrained`, and instead of it in a dry run.
    """
    hidden = experiment.training.hidden
    if experiment.backbone is None:
        return MLP(n_in=width, hidden=hidden, members=members)
    options = {key: value for key, value in experiment.backbone.items() if key not in ("name", "config")}
    is_random = experiment.dry_steps or experiment.backbone.get("pretrained") is None
    if is_random and "config" in experiment.backbone:
        options |= {"pretrained": None, "config": dict(experiment.backbone["config"])}
    if experiment.backbone["name"] == "countnet3d":
        options["n_classes"] = classes
    try:
        return BACKBONES[experiment.backbone["name"]](**options, hidden=hidden, members=members)
    except TypeError as error:
        raise ConfigError(f"Invalid option in [backbone] of {experiment.name}: {error}.") from error


def features_of(
    trunk: nn.Module, inputs: Sequence[Tensor], runtime: Runtime, folder: Path | None, copies: int
) -> list[Tensor] | None:
    """The trunk's outputs for each of `inputs`, or None if `copies` processes cannot keep them in memory.

    They are the same for every method, member and epoch. Pooled features are small and kept in files in `folder`.
    """
    trunk, device = trunk.to(runtime.device), runtime.device
    one = _outputs(trunk, inputs[0][:1], runtime)
    needed = one.numel() * one.element_size() * sum(map(len, inputs)) * copies
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else pages
    # Processes that share a training must all decide alike.
    too_large = torch.full((1,), float(needed > _SHARE * memory), device=device)
    runtime.add_up(too_large)
    return None if too_large > 0 else [_kept(trunk, x, runtime, folder) for x in inputs]


def through(trunk: nn.Module, x: Tensor, runtime: Runtime) -> Tensor:
    """The features of all rows of `x`, on the CPU; texts of similar length go together, so that little is padding."""
    order = (x != 0).sum(1).argsort() if not x.is_floating_point() and x.dim() == 2 else torch.arange(len(x))
    found = torch.empty(0)
    # On a CPU as many rows at once as its cache holds.
    with progress_bar("Features", len(x)) as bar:
        for index in order.split(8 if runtime.device.type == "cpu" else 256):
            outputs = _outputs(trunk, x[index], runtime).cpu()
            found = found if len(found) else torch.zeros(len(x), *outputs.shape[1:], dtype=outputs.dtype)
            found[index] = outputs
            bar.advance(len(index))
    return found


def _outputs(trunk: nn.Module, x: Tensor, runtime: Runtime) -> Tensor:
    """On the trunk's device; hidden states have the precision that the rest of the network is trained in."""
    with torch.no_grad(), runtime.autocast():
        found = trunk(x.to(runtime.device))
    return found.to(torch.bfloat16) if runtime.precision == "bf16" and found.dim() > 2 else found.float()


def _kept(trunk: nn.Module, x: Tensor, runtime: Runtime, folder: Path | None) -> Tensor:
    """The features from a file, whose name identifies rows, weights and precision, or else computed.

    A file is used if it is complete and its first row is what the trunk computes here, up to rounding.
    """
    first = _outputs(trunk, x[:1], runtime).cpu()
    if folder is None or first.dim() > 2:
        return through(trunk, x, runtime)
    rounded = "" if runtime.precision == "float32" else f"-{runtime.precision}"
    known = f"{fingerprint(x):08x}-{frozen_fingerprint(trunk):08x}-{first.shape[1]}{rounded}"
    path = folder / f"features-{known}.safetensors"
    with suppress(InputError):
        features = read(path)[0]["features"]
        if len(features) == len(x) and torch.allclose(features[:1], first, rtol=1e-2, atol=1e-3):
            return features
    features = through(trunk, x, runtime)
    write(path, {"features": features}, {"rows": len(x)})
    return features
