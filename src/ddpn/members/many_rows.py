"""Perceptrons on many rows: the first layer by lookups in sums of its weights, see `ddpn.features.lookups`.

In float64, in which a row has the same prediction alone and among others. Bins make up most of the inputs of a network,
so that the first layer would otherwise take two thirds of the time.
"""

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ddpn.backbones import MLP
from ddpn.features import FeatureEncoder
from ddpn.features.kinds import read_as_fitted
from ddpn.features.lookups import LookupPlan
from ddpn.model import CountModel
from ddpn.threads import threads_for

#: Rows from which on lookups are worth while.
MANY_ROWS = 256
#: Rows that are predicted together: their hidden units stay in cache.
_ROWS = 1024
#: Lookups that are found together, of at most so many times these rows.
_LOOKUPS, _TIMES = 2**18, 8
#: A lookup takes as long as so many inputs.
_PER_LOOKUP = 4


class FirstLayer(NamedTuple):
    """The first layer of all networks side by side, and the parameters that it was made of as they were then."""

    plan: LookupPlan
    bias: Tensor
    weight: Tensor
    sums: Tensor
    made_of: list[tuple[int, int, float]]


#: The first layers of models that have predicted many rows: not kept in the models, which other processes get.
_KNOWN: WeakKeyDictionary[CountModel, FirstLayer] = WeakKeyDictionary()


@torch.no_grad()
def raw_of_many(model: CountModel, encoder: FeatureEncoder, X: Any) -> Tensor | None:
    """Raw outputs of all networks on a CPU; None for networks and encoders that lookups would not make faster.

    Parameters
    ----------
    model : CountModel
        Perceptrons of rectified linear units in float64.
    encoder : FeatureEncoder
        The encoder of their inputs.
    X : table
        Rows with the columns of the encoder. Shape of the result: (rows, M, P).
    """
    layer = _first_layer(model, encoder)
    if layer is None:
        return None
    table = read_as_fitted(encoder, X)
    found = torch.empty((len(table[0].values), model.members, model.head.n_raw), dtype=torch.float64)
    step = _ROWS * min(max(_LOOKUPS // (_ROWS * layer.plan.lookups), 1), _TIMES)
    largest = max(weight.numel() for name, weight in model.named_parameters() if name != "backbone.layers.0.weight")
    with threads_for(_ROWS * largest):
        for top in range(0, len(found), step):
            rows = slice(top, top + step)
            lookups = (torch.from_numpy(x).split(_ROWS) for x in layer.plan.of(table, rows))
            for part, *some in zip(found[rows].split(_ROWS), *lookups, strict=True):
                part.copy_(_raw(model, layer, *some))
    return found


def _raw(model: CountModel, layer: FirstLayer, values: Tensor, places: Tensor, shares: Tensor) -> Tensor:
    hidden = torch.nn.functional.embedding_bag(places, layer.sums, mode="sum", per_sample_weights=shares)
    hidden.addmm_(values, layer.weight).add_(layer.bias).relu_()
    # With rows as columns: products of matrices are faster that way round.
    units = hidden.T.unflatten(0, (model.members, -1))
    for other in list(model.backbone.layers)[1:]:  # type: ignore[arg-type]
        units = _products(other, units).relu_()
    return _products(model.projection, units).permute(2, 0, 1)


def _products(layer: Any, units: Tensor) -> Tensor:
    """A layer of units by network. Shape: (M, in, rows) -> (M, out, rows)."""
    return torch.baddbmm(layer.bias.transpose(1, 2), layer.weight.transpose(1, 2), units)


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
    own, sums = (torch.from_numpy(x) for x in plan.sums(weight.numpy()))
    found = _KNOWN[model] = FirstLayer(plan, first.bias.detach().reshape(1, -1), own, sums, made_of)
    return found
