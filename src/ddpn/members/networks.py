"""Networks as a member: a feature encoder, an ensemble of networks that are trained together, and a head."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from ddpn.members.head_member import HeadMember
from ddpn.members.member import NotApplicableError, Task
from ddpn.members.network_fit import NetworkFit, build_model, select_inputs
from ddpn.members.network_options import NetworkOptions, make_large_options, make_small_options
from ddpn.networks.backbones import BACKBONES
from ddpn.networks.heads import Head, load_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import History
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import NO_LIMIT, Clock
from ddpn.runtime.errors import InputError
from ddpn.runtime.threads import limit_torch_threads
from ddpn.storage.contents import JsonObject, json_to_bytes
from ddpn.tables.columns import ColumnTable
from ddpn.tables.encoding import TableEncoder, encoder_to_bytes, load_encoder
from ddpn.tables.schema import Schema

_FACTS, _WEIGHTS, _ENCODER = "networks.json", "networks.safetensors", "encoder.json"
#: If the best epoch comes after this share of the epochs, networks could learn more. On noisy tables, networks are best
#: after a share of 0.15 to 0.5.
_LATE_SHARE = 0.6
#: The number of rows that are predicted together, so that hidden units stay in cache; and the multiple to which blocks
#: are padded, because products with a single row would be summed in another order.
_BLOCK_ROWS, _ROW_MULTIPLE = 256, 8


class Networks(HeadMember):
    """An ensemble of networks with the same architecture and likelihood, mixed with equal weights.

    If a table has more than 500 columns, the networks use only some of the inputs: those that individually explain the
    counts best. They use as many inputs as there are rows, but at least 500.

    Parameters
    ----------
    head : Head
        The likelihood, which converts raw outputs to a distribution.
    options : NetworkOptions
        How the networks were built and trained.
    encoder : TableEncoder
        Converts tables to inputs.
    chosen : array of int or None
        The positions of the encoder's output columns that the networks use. None if they use all.
    model : CountModel
        The networks, in float64.
    unit : float
        The reference exposure: exposures are divided by this number.
    n_rows : int
        The number of rows on which the networks were trained.
    history : History
        The record of the training.
    """

    label = "networks"
    complexity = 5
    fits_copies_together = True

    def __init__(
        self,
        head: Head,
        options: NetworkOptions,
        encoder: TableEncoder,
        chosen: np.ndarray | None,
        model: CountModel,
        unit: float,
        n_rows: int,
        history: History,
    ) -> None:
        self.head, self.options = head, options
        self.encoder, self.chosen, self.model = encoder, chosen, model
        self.unit, self.n_rows, self.history = unit, n_rows, history

    @classmethod
    def choose_options(cls, task: Task) -> dict[str, Any]:
        # Only the longest training needs a checkpoint; the others take seconds.
        checkpoint = None if _can_be_large(task) else task.checkpoint
        options = make_small_options(task.options, task.rows)
        return {"head": task.head, "options": options, "checkpoint": checkpoint, **_get_run_options(task)}

    # Fitting -----------------------------------------------------------------------------------------------------

    @classmethod
    @torch.inference_mode(False)
    def fit(
        cls, train: CountRows, validation: CountRows | None, seed: int, clock: Clock = NO_LIMIT, **options: Any
    ) -> Self:
        """Encode the rows and train the networks within the time limit of `clock`.

        Each network keeps the weights of the epoch with its best score on the rows `validation`; without them, those of
        the last epoch. If training is interrupted by Ctrl-C, the networks keep their best weights so far, and
        `interrupted` is True. `seed` is the seed of all random numbers. `options` are the arguments of
        `ddpn.members.network_fit.NetworkFit`.
        """
        return NetworkFit(cls, **options).fit(train, validation, seed, clock)

    @classmethod
    @torch.inference_mode(False)
    def fit_copies(
        cls, train: CountRows, fold: np.ndarray, seed: int, clock: Clock = NO_LIMIT, **options: Any
    ) -> list[Self]:
        """Fit one ensemble per fold to the rows outside this fold, each with its own encoder.

        `fold` has the fold of each row, numbered from 0. The networks of all ensembles are trained together. They all
        keep the weights of the same epoch: the one with the best mean score, where each network is scored on the fold
        that it left out. `options` are the arguments of `ddpn.members.network_fit.NetworkFit`. Item k of the result is
        the ensemble that was fitted without fold k.
        """
        return NetworkFit(cls, **options).fit_copies(train, fold, seed, clock)

    @property
    def is_underfitted(self) -> bool:  # type: ignore[override]
        """True if the best epoch of a network is, on average, after 60% of the planned epochs.

        This suggests that larger networks may predict better.
        """
        planned = self.options.epochs if isinstance(self.options.epochs, int) else len(self.history.epochs)
        return float(np.mean(self.history.best_epoch)) > _LATE_SHARE * planned

    @property
    def interrupted(self) -> bool:  # type: ignore[override]
        return self.history.interrupted

    # Predicting --------------------------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema | None:
        return self.encoder.schema_

    @property
    def levels(self) -> Mapping[str, Sequence[str]]:
        return self.encoder.levels

    @torch.no_grad()
    def raw(self, X: ColumnTable, exposure: np.ndarray | None = None) -> Tensor:
        """Compute the raw outputs of each network, such as log mu and log gamma. Shape: (rows, networks, head.n_raw).

        The result for a row does not depend on the other rows in `X`, bit for bit.
        """
        inputs = select_inputs(self.encoder.encode(X), self.chosen)
        blocks = []
        with limit_torch_threads(self.model.estimate_multiply_adds(torch.from_numpy(inputs[:_BLOCK_ROWS]))):
            for start in range(0, len(inputs), _BLOCK_ROWS):
                block = inputs[start : start + _BLOCK_ROWS]
                # In float64, padded with zeros to a multiple of `_ROW_MULTIPLE` rows.
                padded = np.zeros((len(block) + -len(block) % _ROW_MULTIPLE, block.shape[1]))
                padded[: len(block)] = block
                blocks.append(self.model.raw(torch.from_numpy(padded)))
        return (blocks[0] if len(blocks) == 1 else torch.cat(blocks))[: len(inputs)]

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, bytes]:
        # Networks are trained in float32, so saving float32 loses nothing.
        weights = {name: tensor.float().contiguous() for name, tensor in self.model.state_dict().items()}
        facts = {
            "head": {"name": self.head.name, "options": self.head.options},
            "options": self.options.as_dict(),
            "n_networks": self.model.n_networks,
            "inputs": self.encoder.n_inputs if self.chosen is None else len(self.chosen),
            "chosen": None if self.chosen is None else self.chosen.tolist(),
            "unit": self.unit,
            "rows": self.n_rows,
            "history": self.history.as_dict(),
        }
        files = {_WEIGHTS: save_tensors(weights), _ENCODER: encoder_to_bytes(self.encoder)}
        return files | {_FACTS: json_to_bytes(facts)}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        facts = json.loads(files[_FACTS])
        BACKBONES.find_saved(facts["options"].get("backbone", "mlp"))
        head, options = load_head(facts["head"]["name"], facts["head"]["options"]), NetworkOptions(**facts["options"])
        shape = facts["inputs"], facts["n_networks"]
        try:
            weights = load_tensors(files[_WEIGHTS])
            with torch.device("meta"):  # checks the shapes before memory is allocated
                build_model(head, options, *shape).load_state_dict(weights, assign=True)
            model = build_model(head, options, *shape)
            model.load_state_dict(weights)
        except (RuntimeError, SafetensorError) as error:
            raise InputError(f"{_WEIGHTS} is damaged: it does not fit the network that was saved with it.") from error
        encoder = load_encoder(files[_ENCODER], _ENCODER)
        chosen = None if facts["chosen"] is None else np.array(facts["chosen"])
        if chosen is not None:
            width = sum(column.width for column in encoder.columns_)
            if chosen.ndim != 1 or chosen.dtype.kind != "i" or not ((chosen >= 0) & (chosen < width)).all():
                raise InputError(f"{_FACTS} is damaged: networks use inputs that the encoder does not have.")
        history, model = History(**facts["history"]), model.double().eval()
        return cls(head, options, encoder, chosen, model, float(facts["unit"]), facts["rows"], history)

    def get_facts(self) -> JsonObject:
        return {
            "likelihood": self.head.name,
            "head_options": self.head.options,
            "networks": self.model.n_networks,
            "hidden": list(self.options.widths),
            "numeric": self.encoder.numeric,
            "epochs": len(self.history.epochs),
            "best_epochs": self.history.best_epoch,
        }


class LargeNetworks(Networks):
    """Networks with wider layers that train longer.

    They are for tables on which the default networks are still improving when their training ends.
    """

    label = "large networks"
    complexity = 6
    larger_than = "networks"

    @classmethod
    def choose_options(cls, task: Task) -> dict[str, Any]:
        if not _can_be_large(task):
            raise NotApplicableError("the size, encoding or number of epochs of the networks was set")
        options = make_large_options(task.options, task.rows)
        return {"head": task.head, "options": options, "checkpoint": task.checkpoint, **_get_run_options(task)}


def _can_be_large(task: Task) -> bool:
    """Return True if large networks can be fitted to a task.

    The likelihood must be a distribution of counts, and the user must not have set layer widths, encoding or epochs.
    """
    default = NetworkOptions()
    is_customised = any(
        getattr(task.options, name) != getattr(default, name) for name in ("hidden", "numeric", "epochs")
    )
    return task.head.is_count and not is_customised


def _get_run_options(task: Task) -> JsonObject:
    return {"runtime": task.runtime, "verbose": task.verbose, "stream": task.stream}
