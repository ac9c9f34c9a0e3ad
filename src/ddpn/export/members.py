"""Every kind of member as nodes: from the table to the distributions that are mixed."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ddpn.export.encoding import TableNodes, design_matrix, encoded, tree_matrix
from ddpn.export.families import HeadNodes, nodes_of
from ddpn.export.graph import Graph, Value
from ddpn.export.trees import Forest
from ddpn.members.glm import GLM, Constant
from ddpn.members.member import Member
from ddpn.members.networks import Networks
from ddpn.members.trees.booster import Booster
from ddpn.members.trees.member import Trees
from ddpn.runtime.errors import ConfigError


class RowNodes(NamedTuple):
    """What members predict from: the table, the logarithm of the exposure or None, and a zero per row, (rows, 1)."""

    table: TableNodes
    log_exposure: Value | None
    zero: Value

    def log_scale(self, unit: float) -> Value | None:
        """The logarithm of the exposure in units of a member. Shape: (rows, 1)."""
        if self.log_exposure is None:
            return None if unit == 1.0 else self.zero - float(np.log(unit))
        return self.log_exposure - float(np.log(unit))


def member_nodes(graph: Graph, name: str, member: Member, rows: RowNodes) -> HeadNodes:
    """The distributions of a member; raises a `ConfigError` for a kind that has no form in the graph."""
    for kind, make in _KINDS.items():
        if isinstance(member, kind):
            return make(graph, member, rows)
    raise ConfigError(f"A model to export must have members of the kinds that ddpn ships, got {name!r}.")


def _networks(graph: Graph, member: Networks, rows: RowNodes) -> HeadNodes:
    activation, model = member.options.activation, member.model
    projection: Any = model.projection
    if activation not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise ConfigError(f"Networks to export must have one of the activations {known}; got {activation}.")
    x = encoded(graph, rows.table, member.encoder, member.chosen).unsqueezed(0)
    layers: Any = getattr(model.backbone, "layers", [])
    for layer in layers:
        x = _ACTIVATIONS[activation](_linear(graph, x, layer.weight, layer.bias))
    raw = _linear(graph, x, projection.weight, projection.bias).op("Transpose", perm=[1, 0, 2])
    return nodes_of(member.head, raw, rows.log_scale(member.unit), model.n_networks)


def _linear(graph: Graph, x: Value, weight: Tensor, bias: Tensor) -> Value:
    """One layer of all networks at once. Shape: (1 or M, rows, inputs) -> (M, rows, outputs)."""
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
        X = encoded(graph, rows.table, member.encoder)
    center, scale, slopes, base = member.linear
    raw = ((X - center[None]) / scale[None]).op("MatMul", graph.constant(slopes.T)) + base[None]
    raw = raw.clip(member.low[None], member.high[None]).unsqueezed(1)
    return nodes_of(member.head, raw, rows.log_scale(member.unit))


def _constant(graph: Graph, member: Constant, rows: RowNodes) -> HeadNodes:
    from ddpn.networks.heads import make_head

    head = make_head(member.likelihood) if member.head is None else member.head
    raw = rows.zero.unsqueezed(2) + member.raw.numpy()[None, None]
    return nodes_of(head, raw, rows.log_scale(member.unit))


def _trees(graph: Graph, member: Trees, rows: RowNodes) -> HeadNodes:
    matrix, columns = tree_matrix(graph, rows.table, member.table), member.table.width
    scale = rows.log_scale(member.unit)
    rates, dispersion = _sums(graph, matrix, member.means, columns).exp(), rows.zero + float(member.constant)
    log_rate = (rates.sum(1) / float(len(member.means))).log()
    if member.dispersions:
        matrix = graph.concat([matrix, log_rate if scale is None else log_rate + scale])
        sums = _sums(graph, matrix, member.dispersions, columns + 1)
        dispersion = dispersion + sums.sum(1) / float(len(member.dispersions))
    return nodes_of(member.head, graph.concat([log_rate, dispersion]).unsqueezed(1), scale)


def _sums(graph: Graph, matrix: Value, boosters: Sequence[Booster], columns: int) -> Value:
    """The sum of each booster's trees. Shape: (rows, columns) -> (rows, boosters)."""
    forest = Forest(columns)
    for booster in boosters:
        forest.add(booster)
    return forest.sums(graph, matrix)


_KINDS: dict[type, Callable[[Graph, Any, RowNodes], HeadNodes]] = {
    Networks: _networks,
    GLM: _glm,
    Constant: _constant,
    Trees: _trees,
}
