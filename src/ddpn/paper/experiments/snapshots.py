"""Snapshots: weights of networks at certain epochs of a training, which are saved in addition to the final weights.

The epochs are given by number, or chosen by the lowest validation score. All snapshots of a run come from the same
training, so they differ only in the epoch.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from torch import Tensor

from ddpn.networks.model import CountModel
from ddpn.networks.training import Runtime, TensorRows, TrainingConfig
from ddpn.networks.training.batches import MemoryBatches
from ddpn.networks.training.validation import compute_mean_scores
from ddpn.networks.training.weights import find_trained_tensors
from ddpn.runtime.errors import ConfigError
from ddpn.storage.tensor_files import read, write


class SnapshotWriter:
    """A callback that writes snapshots of the weights to files during a training.

    It is passed to `ddpn.networks.training.fit` as `after_epoch`. A snapshot that is named by an epoch has the weights
    at the end of that epoch. A snapshot that is named by a score has, for each network, the weights of the epoch with
    the lowest validation score. When an interrupted training resumes, files of earlier epochs are kept.

    Parameters
    ----------
    path : Path
        The prefix of the file names.
    names : sequence of int or str
        The names of the snapshots: numbers of epochs, and names of scores such as "crps".
    model : CountModel
        The networks that are trained.
    config : TrainingConfig
        The settings of the training.
    runtime : Runtime
        The device and the processes.
    validation : CountRows or None
        Validation rows, for snapshots by a score. Without them, a snapshot that is named by a score raises a
        `ConfigError`.
    """

    def __init__(
        self,
        path: Path,
        names: Sequence[int | str],
        model: CountModel,
        config: TrainingConfig,
        runtime: Runtime,
        validation: TensorRows | None,
    ) -> None:
        self._paths = {name: path.with_name(f"{path.name}-{name}.safetensors") for name in names}
        self._model, self._config, self._runtime = model, config, runtime
        self._best: dict[str, tuple[dict[str, Tensor], list[float]]] = {}
        scores = [name for name in names if isinstance(name, str)]
        if not scores:
            return
        if validation is None or any(
            len(tensor) != config.n_networks for tensor in find_trained_tensors(model).values()
        ):
            got = "no validation rows" if validation is None else "networks without a common member axis"
            raise ConfigError(argument="snapshots", must="be epochs if there are no scores per network", got=got)
        self._rows = MemoryBatches(validation.map(lambda part: part.to(runtime.device)), config.batch_size)
        for score in scores:
            if self._paths[score].exists():
                tensors, about = read(self._paths[score])
                self._best[score] = tensors, about["scores"]
            else:
                self._best[score] = self._weights(), [float("inf")] * config.n_networks

    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor.float().cpu().clone() for name, tensor in find_trained_tensors(self._model).items()}

    def __call__(self, epoch: int) -> None:
        """Write the snapshots that change at the end of an epoch. `epoch` is the number of completed epochs.

        If there is a snapshot of this epoch, it is written with the current weights of the networks. For each snapshot
        that is named by a score, the networks are scored on the validation rows. A network whose score is lower than
        ever before replaces its weights in the snapshot by its current ones. The file is written again if at least one
        network has done so. Only the main process writes files.
        """
        if epoch in self._paths and self._runtime.is_main:
            write(self._paths[epoch], self._weights(), {})
        for score, (best, lowest) in self._best.items():
            config = replace(self._config, score=cast(Literal["nll", "crps", "loss"], score))
            scores = compute_mean_scores(self._model, self._rows, config, self._runtime)
            better = [network for network, value in enumerate(scores) if value < lowest[network]]
            if not better:
                continue
            weights = self._weights()
            for network in better:
                lowest[network] = scores[network]
                for name, tensor in best.items():
                    tensor[network] = weights[name][network]
            if self._runtime.is_main:
                write(self._paths[score], best, {"scores": lowest})

    def read(self) -> dict[int | str, dict[str, Tensor]]:
        """Read the weights of every snapshot after the training: for each snapshot's name, a dict of tensors by name.

        An error is raised if the training did not reach the epoch of a snapshot, because its file does not exist.
        """
        return {name: read(path)[0] for name, path in self._paths.items()}
