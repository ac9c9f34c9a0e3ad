"""Add graph nodes that compute the predicted distributions of the members of a mixture from the encoded table."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ddpn.export.encoding import EncodedTable, build_design_matrix, build_tree_matrix, encode_inputs
from ddpn.export.families import HeadNodes, add_head
from ddpn.export.graph import Graph, Value
from ddpn.export.trees import Forest
from ddpn.members.constant import Constant
from ddpn.members.design import Design
from ddpn.members.glm import GLM
from ddpn.members.member import Member
from ddpn.members.networks import Networks
from ddpn.members.trees.booster import Booster
from ddpn.members.trees.member import Trees
from ddpn.runtime.errors import ConfigError


class RowNodes(NamedTuple):
    """The graph values from which all members predict.

    Attributes
    ----------
    table : EncodedTable
        The encoded columns of the table.
    log_exposure : Value or None
        The log of each row's exposure, shape (rows, 1). None if the model has no exposure.
    zero : Value
        A column of zeros, shape (rows, 1). Adding it to a constant repeats the constant for each row.
    """

    table: EncodedTable
    log_exposure: Value | None
    zero: Value

    def log_scale(self, unit: float) -> Value | None:
        """Return log(exposure / unit), with shape (rows, 1), the term to add to a member's predicted log location.

        `unit` is the exposure to which the member's raw outputs refer. If the model has no exposure, the exposure is 1.
        If it also has the unit 1, there is nothing to add, and None is returned.
        """
        if self.log_exposure is None:
            return None if unit == 1.0 else self.zero - float(np.log(unit))
        return self.log_exposure - float(np.log(unit))


def add_member(graph: Graph, name: str, member: Member, rows: RowNodes) -> HeadNodes:
    """Add the nodes that compute the distributions that a member predicts, and return these distributions.

    `name` is the name of the member in error messages. `rows` has the values from which it predicts. If the member
    cannot be exported, because of its class, its likelihood or its kind of networks, a `ConfigError` is raised.
    """
    for kind, make in _ADD_BY_CLASS.items():
        if isinstance(member, kind):
            return make(graph, member, rows)
    raise ConfigError(f"The member {name!r} cannot be exported: only kinds of members that ddpn ships can.")


def _add_networks(graph: Graph, member: Networks, rows: RowNodes) -> HeadNodes:
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
    return add_head(member.head, raw, rows.log_scale(member.unit), model.n_networks)


def _linear(graph: Graph, x: Value, weight: Tensor, bias: Tensor) -> Value:
    """Apply a linear layer of M networks at once: `x` @ `weight` + `bias`.

    Shape: x (1 or M, rows, inputs), weight (M, inputs, outputs), bias (M, 1, outputs) -> (M, rows, outputs).
    """
    return x.op("MatMul", graph.weights(weight.detach().numpy())) + graph.weights(bias.detach().numpy())


_ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "relu": lambda x: x.op("Relu"),
    "silu": lambda x: x * x.op("Sigmoid"),
    "tanh": lambda x: x.op("Tanh"),
}


def _add_glm(graph: Graph, member: GLM, rows: RowNodes) -> HeadNodes:
    if isinstance(member.encoder, Design):
        X = build_design_matrix(graph, rows.table, member.encoder)
    else:
        X = encode_inputs(graph, rows.table, member.encoder)
    center, scale, slopes, base = member.linear
    raw = ((X - center[None]) / scale[None]).op("MatMul", graph.constant(slopes.T)) + base[None]
    raw = raw.clip(member.low[None], member.high[None]).add_axes(1)
    return add_head(member.head, raw, rows.log_scale(member.unit))


def _add_constant(graph: Graph, member: Constant, rows: RowNodes) -> HeadNodes:
    raw = rows.zero.add_axes(2) + member.raw.numpy()[None, None]
    return add_head(member.head, raw, rows.log_scale(member.unit))


def _add_trees(graph: Graph, member: Trees, rows: RowNodes) -> HeadNodes:
    matrix, columns = build_tree_matrix(graph, rows.table, member.table), member.table.width
    scale = rows.log_scale(member.unit)
    rates, dispersion = _sum_trees(graph, matrix, member.means, columns).exp(), rows.zero + float(member.constant)
    log_rate = (rates.sum(1) / float(len(member.means))).log()
    if member.dispersions:
        matrix = graph.concat([matrix, log_rate if scale is None else log_rate + scale])
        sums = _sum_trees(graph, matrix, member.dispersions, columns + 1)
        dispersion = dispersion + sums.sum(1) / float(len(member.dispersions))
    return add_head(member.head, graph.concat([log_rate, dispersion]).add_axes(1), scale)


def _sum_trees(graph: Graph, matrix: Value, boosters: Sequence[Booster], columns: int) -> Value:
    """Add nodes that predict with each booster, by summing its trees. Shape: (rows, columns) -> (rows, boosters).

    `columns` is the number of columns of `matrix`.
    """
    forest = Forest(columns)
    for booster in boosters:
        forest.add(booster)
    return forest.sum_trees(graph, matrix)


_ADD_BY_CLASS: dict[type, Callable[[Graph, Any, RowNodes], HeadNodes]] = {
    Networks: _add_networks,
    GLM: _add_glm,
    Constant: _add_constant,
    Trees: _add_trees,
}
