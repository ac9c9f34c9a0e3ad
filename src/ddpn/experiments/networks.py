"""The network of a run, and what of its inputs can be computed once for all runs."""

import os
from typing import Any

import torch
from torch import Tensor, nn

from ddpn.backbones import BACKBONES, MLP, Tuned
from ddpn.errors import ConfigError
from ddpn.experiments.experiment import Experiment
from ddpn.progress import progress_bar
from ddpn.training import Runtime

#: Of the memory there is, so much may be filled with what a frozen trunk gave.
_SHARE = 0.4
#: Rows that go through a trunk together: on a CPU what stays in its cache.
_BLOCK = {"cpu": 8, "cuda": 256}


def network_of(experiment: Experiment, width: int, members: int, *, classes: int = 0) -> Any:
    """The backbone that an experiment declares; a perceptron of `width` inputs where it declares none.

    The declared `config`, if any, has random weights: where nothing is pretrained, and in a dry run in its place.
    """
    hidden = experiment.training.hidden
    if experiment.backbone is None:
        return MLP(n_in=width, hidden=hidden, members=members)
    options = {key: value for key, value in experiment.backbone.items() if key not in ("name", "config")}
    unread = experiment.dry_steps or experiment.backbone.get("pretrained") is None
    if unread and "config" in experiment.backbone:
        options |= {"pretrained": None, "config": dict(experiment.backbone["config"])}
    if experiment.backbone["name"] == "countnet3d":
        options["n_classes"] = classes
    try:
        return BACKBONES[experiment.backbone["name"]](**options, hidden=hidden, members=members)
    except TypeError as error:
        raise ConfigError(
            f"[backbone] of {experiment.name} must have options that {experiment.backbone['name']} takes, got {error}. "
            "Rename or drop them."
        ) from error


def given_by(trunk: nn.Module, x: Tensor, runtime: Runtime) -> Tensor:
    """What the trunk gives for some rows, on its device; hidden states in the precision that the tail is trained in."""
    with torch.no_grad(), runtime.autocast():
        found = trunk(x.to(runtime.device))
    return found.to(torch.bfloat16) if runtime.precision == "bf16" and found.dim() > 2 else found.float()


def fits(x: Tensor, trunk: nn.Module, rows: int, runtime: Runtime, copies: int = 1) -> bool:
    """Whether what the trunk gives for `rows` rows can be kept in memory by `copies` processes; `x` is one of them."""
    one, device = given_by(trunk, x, runtime), runtime.device
    needed = one.numel() * one.element_size() * rows * copies
    if device.type == "cuda":
        return needed <= _SHARE * torch.cuda.mem_get_info(device)[0]
    return needed <= _SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def through(trunk: nn.Module, x: Tensor, runtime: Runtime) -> Tensor:
    """What the trunk gives for all rows of `x`, on the CPU; short texts go together, so that little is padding."""
    order = (x != 0).sum(1).argsort() if not x.is_floating_point() and x.dim() == 2 else torch.arange(len(x))
    found: Tensor | None = None
    with progress_bar("Features", len(x)) as bar:
        for index in order.split(_BLOCK.get(runtime.device.type, 256)):
            given = given_by(trunk, x[index], runtime).cpu()
            if found is None:
                found = torch.zeros(len(x), *given.shape[1:], dtype=given.dtype)
            found[index] = given
            bar.advance(len(index))
    assert found is not None
    return found


def trunk_of(network: Any) -> nn.Module | None:
    """The part that learns nothing, if it has one."""
    return network.trunk if isinstance(network, Tuned) else None
