"""Ensembles of large networks: some members at a time in memory, each saved to a file as soon as it is trained."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ddpn.distributions import Mixture
from ddpn.networks.heads import Head
from ddpn.networks.model import CountModel
from ddpn.networks.training.batches import Source
from ddpn.networks.training.checkpointing import check_identity, data_identity, model_identity
from ddpn.networks.training.config import TrainingConfig
from ddpn.networks.training.loop import fit
from ddpn.networks.training.runtime import Runtime
from ddpn.networks.training.state import History
from ddpn.networks.training.trainable import frozen_fingerprint, load_trained_tensors, trained_tensors
from ddpn.networks.training.validation import check_source
from ddpn.runtime.errors import InputError
from ddpn.runtime.threads import threads_for
from ddpn.runtime.validation import check_integer
from ddpn.sample import Sample, check_vector
from ddpn.storage.tensor_files import fingerprint, read, write


class Ensemble:
    """Members whose weights are in a folder, one file per group, of which one group is in memory at a time.

    Parameters
    ----------
    make : callable
        Builds a model with the given number of members.
    folder : Path
        The folder of the files.
    groups : sequence of tuples of int
        The seeds that were trained together.
    interrupted : bool
        Whether Ctrl-C ended `fit_ensemble` before all groups were trained: `groups` are the finished ones.
    """

    def __init__(
        self,
        make: Callable[[int], CountModel],
        folder: Path,
        groups: Sequence[tuple[int, ...]],
        interrupted: bool = False,
    ) -> None:
        self.make, self.folder, self.groups, self.interrupted = make, folder, list(groups), interrupted

    def path(self, number: int) -> Path:
        """The file of a group."""
        return self.folder / f"members-{number}.safetensors"

    def models(self) -> Iterator[CountModel]:
        """One group after the other, in evaluation mode on the CPU."""
        for number, seeds in enumerate(self.groups):
            model, path = self.make(len(seeds)), self.path(number)
            tensors, about = read(path)
            load_trained_tensors(model, tensors, path)
            if about["frozen weights"] != frozen_fingerprint(model):
                raise InputError(f"{path} was trained with other frozen weights. Load those of its training.")
            yield model.eval()

    def histories(self) -> list[History]:
        """The history of each group's training."""
        return [History(**read(self.path(number))[1]["history"]) for number in range(len(self.groups))]

    def raw(self, x: Tensor, device: torch.device | str = "cpu", batch: int = 256) -> Tensor:
        """Raw outputs of every member. Shape: (B, M, P).

        Parameters
        ----------
        x : Tensor, shape (B, ...)
            Inputs.
        device : torch.device or str
            Where to compute.
        batch : int
            Rows that are computed at a time.
        """
        return self._raw(x, device, batch)[0]

    def mixture(
        self, x: Tensor, device: torch.device | str = "cpu", batch: int = 256, *, exposure: Tensor | float | None = None
    ) -> Mixture:
        """The prediction: the uniform mixture of all members. Shape: batch (B,).

        Parameters
        ----------
        x, device, batch
            As for `raw`.
        exposure : Tensor, shape (B,), or float, optional
            The known scale of each row, or one for all rows.
        """
        if exposure is None and self._has_exposure:
            raise InputError("exposure is missing: the members were trained with exposures.")
        scale = check_vector("exposure", exposure, len(x), zero=False)
        raw, head = self._raw(x, device, batch)
        return Mixture(head(raw, None if scale is None else torch.from_numpy(scale).float().unsqueeze(-1)))

    @cached_property
    def _has_exposure(self) -> bool:
        """Whether members were trained with exposures, as far as their files show."""
        return read(self.path(0))[1]["training data"].get("exposure") is not None

    @torch.no_grad()
    def _raw(self, x: Tensor, device: torch.device | str, batch: int) -> tuple[Tensor, Head]:
        found = []
        for model in self.models():
            model.to(device)
            with threads_for(model.multiply_adds(x[:batch])):
                found.append(torch.cat([model.raw(part.to(device)).float().cpu() for part in x.split(batch)]))
            head = model.head
        return torch.cat(found, dim=1), head


def fit_ensemble(
    make: Callable[[int], CountModel],
    train: Source,
    validation: Sample | Dataset | None,
    config: TrainingConfig,
    folder: Path,
    *,
    at_once: int = 1,
    runtime: Runtime | None = None,
    start: Tensor | None = None,
    prepare: Callable[[CountModel], Any] | None = None,
    **options: Any,
) -> Ensemble:
    """Train an ensemble some members at a time; groups whose file is in the folder are not trained again.

    Members share nothing, so they are the same as if all were trained together, except for what dropout draws. An
    interrupted training resumes: the group that was being trained has its own checkpoint. Files of another
    configuration, network, head or data raise an `InputError`. Ctrl-C ends the training of this group and of those that
    would follow: the ensemble of the finished groups is returned, with `interrupted` set.

    Parameters
    ----------
    make : callable
        Builds a model with the given number of members.
    train, validation, config, runtime, **options
        As for `fit`; `config.seeds` has one seed per member.
    folder : Path
        Where the weights of each group are kept.
    at_once : int
        Members that are trained together.
    start : Tensor, optional
        The bias of fresh weights, see `CountModel.reset`.
    prepare : callable, optional
        Called with each model after its weights were drawn.
    """
    check_integer("at_once", at_once, minimum=1)
    runtime = runtime or Runtime(precision=config.precision)
    groups = [config.seeds[first : first + at_once] for first in range(0, config.members, at_once)]
    ensemble = Ensemble(make, Path(folder), groups)
    check_source("train", train)
    check_source("validation", validation, needed=False)
    data = data_identity(train, validation)
    for number, seeds in enumerate(groups):
        part, path, model = replace(config, seeds=seeds), ensemble.path(number), make(len(seeds))
        about = {"config": part.as_dict(), **data, **model_identity(model)}
        about["start"] = None if start is None else fingerprint(start)
        if path.exists():
            check_identity(path, read(path)[1], about)
        else:
            model.reset(seeds, start)
            if prepare is not None:
                prepare(model)
            state = ensemble.folder / f"members-{number}.state"
            history = fit(model, train, validation, part, runtime=runtime, checkpoint=state, **options)
            if history.interrupted:
                return Ensemble(make, ensemble.folder, groups[:number], interrupted=True)
            if runtime.is_main:
                write(path, trained_tensors(model), {**about, "history": history.as_dict()})
                state.unlink(missing_ok=True)
            runtime.wait()
    return ensemble
