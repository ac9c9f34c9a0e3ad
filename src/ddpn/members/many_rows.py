"""Perceptrons on many rows: the first layer by lookups in sums of its weights, see `ddpn.features.lookups`.

In float64, in which a row has the same prediction alone and among others to twelve digits, or in float32 where that is
allowed, see `ddpn.members.float32_rows`. Bins make up most of the inputs of a network, so that the first layer would
otherwise take two thirds of the time.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ddpn.backbones import MLP
from ddpn.features import FeatureEncoder
from ddpn.features.kinds import read_as_fitted
from ddpn.features.lookups import LookupPlan
from ddpn.features.table import Column
from ddpn.members.float32_rows import agrees, is_far, is_large, rows_for_float64, uses_float32
from ddpn.model import CountModel
from ddpn.runtime.threads import threads_for

#: Rows from which on lookups are worth while.
MANY_ROWS = 256
#: Rows that are predicted together, in float32 twice as many: their hidden units stay in cache.
_ROWS = 1024
#: Lookups that are found together, of at most so many times these rows.
_LOOKUPS, _TIMES = 2**18, 8
#: A lookup takes as long as so many inputs.
_PER_LOOKUP = 4


class FirstLayer(NamedTuple):
    """The first layer of all networks side by side, and the parameters that it was made of as they were then.

    The last row of `weight` is the bias.
    """

    plan: LookupPlan
    weight: Tensor
    sums: Tensor
    made_of: list[tuple[int, int, float]]


#: The first layers of models that have predicted many rows: not kept in the models, which other processes get.
_KNOWN: WeakKeyDictionary[CountModel, FirstLayer] = WeakKeyDictionary()


class Layers(NamedTuple):
    """All layers, with the bias (M, out, 1) and the weight (M, out, in) of each but the first; the last in float64.

    With rows as columns: products of matrices are faster that way round.
    """

    first: FirstLayer
    hidden: list[tuple[Tensor, Tensor]]
    last: tuple[Tensor, Tensor]
    dtype: torch.dtype

    @classmethod
    def of(cls, model: CountModel, first: FirstLayer, dtype: torch.dtype) -> Self:
        """The layers of a model in a precision."""
        *hidden, last = (
            (layer.bias.transpose(1, 2), layer.weight.transpose(1, 2))
            for layer in (*list(model.backbone.layers)[1:], model.projection)  # type: ignore[arg-type]
        )
        own = first._replace(weight=first.weight.to(dtype), sums=first.sums.to(dtype))
        return cls(own, [(bias.to(dtype), weight.to(dtype)) for bias, weight in hidden], last, dtype)

    def write(self, table: Sequence[Column], rows: Any, out: Tensor) -> np.ndarray:
        """Write the raw outputs of some rows of a table, out (M, P, rows); returns their inputs that have no bound."""
        found = self.first.plan.of(table, rows, np.float32 if self.dtype == torch.float32 else np.float64)
        step = _ROWS if self.dtype == torch.float64 else 2 * _ROWS
        parts = (torch.from_numpy(x).split(step) for x in found)
        for part, *some in zip(out.split(step, dim=2), *parts, strict=True):
            part.copy_(self._raw(*some))
        return found.values

    def _raw(self, values: Tensor, places: Tensor, shares: Tensor) -> Tensor:
        first = self.first
        units = torch.nn.functional.embedding_bag(places, first.sums, mode="sum", per_sample_weights=shares)
        units = units.addmm_(values, first.weight).relu_().T.unflatten(0, (len(self.last[0]), -1))
        for bias, weight in self.hidden:
            units = torch.baddbmm(bias, weight, units).relu_()
        bias, weight = self.last
        return torch.baddbmm(bias, weight, units.double())


@torch.no_grad()
def raw_of_many(model: CountModel, encoder: FeatureEncoder, X: Any, scale: Tensor | None = None) -> Tensor | None:
    """Raw outputs of all networks on a CPU; None for networks and encoders that lookups would not make faster.

    In float64; in float32 if that is allowed and loses no digits, see `ddpn.members.float32_rows`. Memory is that of
    (M, P, rows).

    Parameters
    ----------
    model : CountModel
        Perceptrons of rectified linear units in float64.
    encoder : FeatureEncoder
        The encoder of their inputs.
    X : table
        Rows with the columns of the encoder. Shape of the result: (rows, M, P).
    scale : Tensor, shape (rows,), optional
        What multiplies the means of each row.
    """
    layer = _first_layer(model, encoder)
    if layer is None:
        return None
    table = read_as_fitted(encoder, X)
    count = len(table[0].values)
    largest = max(weight.numel() for name, weight in model.named_parameters() if name != "backbone.layers.0.weight")
    with threads_for(_ROWS * largest):
        found = _in_float32(model, layer, table, encoder.limit, scale) if uses_float32(model.head, count) else None
        if found is None:
            found = torch.empty((model.members, model.head.n_raw, count), dtype=torch.float64)
            exact = Layers.of(model, layer, torch.float64)
            for rows in _parts(layer, count):
                exact.write(table, rows, found[..., rows])
    return found.permute(2, 0, 1)


def _parts(layer: FirstLayer, count: int) -> Iterator[slice]:
    """Rows whose lookups are found together."""
    step = _ROWS * min(max(_LOOKUPS // (_ROWS * layer.plan.lookups), 1), _TIMES)
    return (slice(top, min(top + step, count)) for top in range(0, count, step))


def _in_float32(
    model: CountModel, layer: FirstLayer, table: Sequence[Column], limit: float, scale: Tensor | None
) -> Tensor | None:
    """Raw outputs in float32; in float64 where some means are large; None where float32 loses digits.

    Shape: (M, P, rows).
    """
    exact, rough = (Layers.of(model, layer, dtype) for dtype in (torch.float64, torch.float32))
    count = len(table[0].values)
    found = torch.empty((model.members, model.head.n_raw, count), dtype=torch.float32)
    large, far = np.empty((2, count), dtype=bool)
    for rows in _parts(layer, count):
        far[rows] = is_far(rough.write(table, rows, found[..., rows]), limit)
        large[rows] = is_large(model.head, found[..., rows], None if scale is None else scale[rows])
    sample, rest = rows_for_float64(large | far)
    if 2 * len(rest) > count:
        return None
    index = np.concatenate([sample, rest])
    wide = torch.empty((*found.shape[:2], len(index)), dtype=torch.float64)
    for rows in _parts(layer, len(index)):
        exact.write(table, index[rows], wide[..., rows])
    if not agrees(found[..., sample], wide[..., : len(sample)]):
        return None
    if large.any():
        found = found.double()
    found[..., index] = wide.to(found.dtype)
    return found


def _first_layer(model: CountModel, encoder: FeatureEncoder) -> FirstLayer | None:
    backbone = model.backbone
    if type(backbone) is not MLP or backbone.activation != "relu" or not model.projection.is_plain:
        return None
    first: Any = backbone.layers[0]
    pair = (first.weight, first.bias)
    if any(each.dtype != torch.float64 or each.device.type != "cpu" for each in pair):
        return None
    # Changes through `.data` have no new version.
    made_of = [(each.data_ptr(), each._version, each.detach().sum().item()) for each in pair]
    known = _KNOWN.get(model)
    if known is not None and known.made_of == made_of and known.plan.inputs == first.weight.shape[1]:
        return known
    plan = LookupPlan(encoder.columns_, encoder.limit)
    if _PER_LOOKUP * plan.lookups + plan.values >= plan.inputs or plan.inputs != first.weight.shape[1]:
        return None
    weight = first.weight.detach().transpose(0, 1).reshape(plan.inputs, -1)
    own, sums = (torch.from_numpy(x) for x in plan.sums(weight.numpy(), first.bias.detach().numpy().reshape(-1)))
    found = _KNOWN[model] = FirstLayer(plan, own, sums, made_of)
    return found
