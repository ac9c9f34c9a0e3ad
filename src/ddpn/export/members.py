"""Graph nodes for every kind of member: from the table to distributions."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ddpn.export.encoding import EncodedTable, design_matrix, encode_inputs, tree_matrix
from ddpn.export.families import HeadNodes, place_head
from ddpn.export.graph import Graph, Value
from ddpn.export.trees import Forest
from ddpn.members.constant import Constant
from ddpn.members.glm import GLM
from ddpn.members.member import Member
from ddpn.members.networks import Networks
from ddpn.members.trees.booster import Booster
from ddpn.members.trees.member import Trees
from ddpn.runtime.errors import ConfigError


class RowNodes(NamedTuple):
    """The inputs of members: the table, the logarithm of the exposure (or None), and a zero per row, (rows, 1)."""

    table: EncodedTable
    log_exposure: Value | None
    zero: Value

    def log_scale(self, unit: float) -> Value | None:
        """Return the logarithm of the exposure in the unit of a member. Shape: (rows, 1)."""
        if self.log_exposure is None:
            return None if unit == 1.0 else self.zero - float(np.log(unit))
        return self.log_exposure - float(np.log(unit))


def place_member(graph: Graph, name: str, member: Member, rows: RowNodes) -> HeadNodes:
    """Add the nodes of a member and return its distributions; raise a `ConfigError` if it cannot be exported."""
    for kind, make in _PLACE_BY_CLASS.items():
        if isinstance(member, kind):
            return make(graph, member, rows)
    raise ConfigError(f"The member {name!r} cannot be exported: only kinds of members that ddpn ships can.")


def _networks(graph: Graph, member: Networks, rows: RowNodes) -> HeadNodes:
    activation, model = member.options.activation, member.model
    projection: Any = model.projection
    if activation not in _ACTIVATIONS:
        supported = ", ".join(_ACTIVATIONS)
        raise ConfigError(f"Networks with the activation {activation} cannot be exported. Use one of {supported}.")
    if member.options.backbone != "mlp":
        raise ConfigError('Networks with a backbone of yours cannot be exported. Use backbone="mlp".')
    x = encode_inputs(graph, rows.table, member.encoder, member.chosen).add_axes(0)
    layers: Any = getattr(model.backbone, "layers", [])
    for layer in layers:
        x = _ACTIVATIONS[activation](_linear(graph, x, layer.weight, layer.bias))
    raw = _linear(graph, x, projection.weight, projection.bias).op("Transpose", perm=[1, 0, 2])
    return place_head(member.head, raw, rows.log_scale(member.unit), model.n_networks)


def _linear(graph: Graph, x: Value, weight: Tensor, bias: Tensor) -> Value:
    """Apply one layer of all networks at once. Shape: (1 or M, rows, inputs) -> (M, rows, outputs)."""
    return x.op("MatMul", graph.weights(weight.detach().numpy())) + graph.weights(bias.detach().numpy())


_ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "relu": lambda x: x.op("Relu"),
    "silu": lambda x: x * x.op("Sigmoid"),
    "tanh": lambda x: x.op("Tanh"),
}


def _glm(graph: Graph, member: GLM, rows: RowNodes) -> HeadNodes:
    if member.design is not None:
        X = design_matrix(graph, rows.table, member.design)
    else:
        assert member.encoder is not None
        X = encode_inputs(graph, rows.table, member.encoder)
    center, scale, slopes, base = member.linear
    raw = ((X - center[None]) / scale[None]).op("MatMul", graph.constant(slopes.T)) + base[None]
    raw = raw.clip(member.low[None], member.high[None]).add_axes(1)
    return place_head(member.head, raw, rows.log_scale(member.unit))


def _constant(graph: Graph, member: Constant, rows: RowNodes) -> HeadNodes:
    raw = rows.zero.add_axes(2) + member.raw.numpy()[None, None]
    return place_head(member.head, raw, rows.log_scale(member.unit))


def _trees(graph: Graph, member: Trees, rows: RowNodes) -> HeadNodes:
    matrix, columns = tree_matrix(graph, rows.table, member.table), member.table.width
    scale = rows.log_scale(member.unit)
    rates, dispersion = _sum_trees(graph, matrix, member.means, columns).exp(), rows.zero + float(member.constant)
    log_rate = (rates.sum(1) / float(len(member.means))).log()
    if member.dispersions:
        matrix = graph.concat([matrix, log_rate if scale is None else log_rate + scale])
        sums = _sum_trees(graph, matrix, member.dispersions, columns + 1)
        dispersion = dispersion + sums.sum(1) / float(len(member.dispersions))
    return place_head(member.head, graph.concat([log_rate, dispersion]).add_axes(1), scale)


def _sum_trees(graph: Graph, matrix: Value, boosters: Sequence[Booster], columns: int) -> Value:
    """Sum the trees of each booster. Shape: (rows, columns) -> (rows, boosters)."""
    forest = Forest(columns)
    for booster in boosters:
        forest.add(booster)
    return forest.sums(graph, matrix)


_PLACE_BY_CLASS: dict[type, Callable[[Graph, Any, RowNodes], HeadNodes]] = {
    Networks: _networks,
    GLM: _glm,
    Constant: _constant,
    Trees: _trees,
}
