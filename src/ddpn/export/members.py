"""Every kind of member as nodes: from the table to the distributions that are mixed."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ddpn.export.encoding import design_matrix, encoded, tree_matrix
from ddpn.export.graph import Graph, Value
from ddpn.export.links import Parts, parts_of
from ddpn.export.table import Table
from ddpn.export.trees import Forest
from ddpn.members.constant import Constant
from ddpn.members.glm import GLM
from ddpn.members.member import Member
from ddpn.members.networks import Networks
from ddpn.members.trees.index import Index
from ddpn.members.trees.joint_member import JointTrees, Seed
from ddpn.members.trees.member import Trees
from ddpn.runtime.errors import ConfigError


class Rows(NamedTuple):
    """What members predict from: the table, the logarithm of the exposure or None, and a zero per row, (rows, 1)."""

    table: Table
    log_exposure: Value | None
    zero: Value

    def log_scale(self, unit: float) -> Value | None:
        """The logarithm of the exposure in units of a member. Shape: (rows, 1)."""
        if self.log_exposure is None:
            return None if unit == 1.0 else self.zero - float(np.log(unit))
        return self.log_exposure - float(np.log(unit))


class Stack(NamedTuple):
    """The k distributions per row of a member."""

    size: int
    parts: Parts


def member_stack(graph: Graph, name: str, member: Member, rows: Rows) -> Stack:
    """The distributions of a member; raises a `ConfigError` for a kind that has no form in the graph."""
    for kind, make in _KINDS.items():
        if isinstance(member, kind):
            return make(graph, member, rows)
    raise ConfigError(f"A model to export must have members of the kinds that ddpn ships, got {name!r}.")


def _networks(graph: Graph, member: Networks, rows: Rows) -> Stack:
    activation, model = member.options.activation, member.model
    projection: Any = model.projection
    if activation not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise ConfigError(f"Networks to export must have one of the activations {known}; got {activation}.")
    x = encoded(graph, rows.table, member.encoder, member.chosen).unsqueezed(0)
    layers: Any = getattr(model.backbone, "layers", [])
    for layer in layers:
        x = _ACTIVATIONS[activation](_linear(graph, x, layer.weight, layer.bias))
    weight = projection.weight * torch.tensor([float(what != "nothing") for what in member.head.sees])
    raw = _linear(graph, x, weight, projection.bias).op("Transpose", perm=[1, 0, 2])
    return Stack(model.members, parts_of(member.head, raw, rows.log_scale(member.unit)))


def _linear(graph: Graph, x: Value, weight: Any, bias: Any) -> Value:
    """One layer of all networks at once. Shape: (1 or M, rows, inputs) -> (M, rows, outputs)."""
    return x.op("MatMul", graph.weights(weight.detach().numpy())) + graph.weights(bias.detach().numpy())


_ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "relu": lambda x: x.op("Relu"),
    "silu": lambda x: x * x.op("Sigmoid"),
    "tanh": lambda x: x.op("Tanh"),
}


def _glm(graph: Graph, member: GLM, rows: Rows) -> Stack:
    if member.design is not None:
        X = design_matrix(graph, rows.table, member.design)
    else:
        assert member.encoder is not None
        X = encoded(graph, rows.table, member.encoder)
    center, scale, slopes, base = member.linear
    raw = ((X - center[None]) / scale[None]).op("MatMul", graph.constant(slopes.T)) + base[None]
    raw = raw.clip(member.low[None], member.high[None]).unsqueezed(1)
    return Stack(1, parts_of(member.head, raw, rows.log_scale(member.unit)))


def _constant(graph: Graph, member: Constant, rows: Rows) -> Stack:
    from ddpn.networks.heads import make_head

    head = make_head(member.likelihood) if member.head is None else member.head
    raw = rows.zero.unsqueezed(2) + member.raw.numpy()[None, None]
    return Stack(1, parts_of(head, raw, rows.log_scale(member.unit)))


def _trees(graph: Graph, member: Trees, rows: Rows) -> Stack:
    matrix = tree_matrix(graph, rows.table, member.table)
    columns = member.table.width
    indexed = _with_indices(graph, matrix, [fold.additive for fold in member.folds], columns)
    forest = Forest(indexed.width)
    for fold, place in zip(member.folds, indexed.places, strict=True):
        forest.add(fold.main, place)
    rates = forest.sums(graph, indexed.matrix).exp()
    log_rate = (rates.sum(1) / float(len(member.folds))).log()
    scale = rows.log_scale(member.unit)
    dispersion = rows.zero + member.constant
    if member.dispersion:
        more = Forest(columns + 1)
        for booster in member.dispersion:
            more.add(booster)
        log_mean = log_rate if scale is None else log_rate + scale
        sums = more.sums(graph, graph.concat([matrix, log_mean]))
        dispersion = dispersion + sums.sum(1) / float(len(member.dispersion))
    raw = graph.concat([log_rate, dispersion]).unsqueezed(1)
    return Stack(1, parts_of(member.head, raw, scale))


class _Indexed(NamedTuple):
    """The matrix with the inputs of every fold's index, how wide it is, and where each fold finds its own."""

    matrix: Value
    width: int
    places: list[dict[int, int]]


def _with_indices(graph: Graph, matrix: Value, indices: Sequence[Index | None], columns: int) -> _Indexed:
    """As `ddpn.members.trees.index.with_index`, for all folds at once."""
    forest = Forest(columns)
    places: list[dict[int, int]] = []
    order: list[list[int]] = []
    for index in indices:
        own: dict[int, int] = {}
        if index is not None:
            first = len(forest.constants)
            for group in index.groups:
                forest.add(group)
            targets = [[number] for number in range(first, len(forest.constants))]
            # Several groups are followed by their sum.
            targets += [[number for (number,) in targets]] if len(targets) > 1 else []
            own = {columns + j: columns + len(order) + j for j in range(len(targets))}
            order += targets
        places.append(own)
    if not order:
        return _Indexed(matrix, columns, places)
    shares = np.zeros((len(forest.constants), len(order)))
    for j, summed in enumerate(order):
        shares[summed, j] = 1.0
    inputs = forest.sums(graph, matrix).op("MatMul", graph.constant(shares))
    return _Indexed(graph.concat([matrix, inputs]), columns + len(order), places)


def _joint_trees(graph: Graph, member: JointTrees, rows: Rows) -> Stack:
    matrix = tree_matrix(graph, rows.table, member.table)
    each = [_seed(graph, seed, matrix, rows, member.table.width).unsqueezed(1) for seed in member.seeds_]
    return Stack(len(each), parts_of(member.head, graph.concat(each), rows.log_scale(member.unit)))


def _seed(graph: Graph, seed: Seed, matrix: Value, rows: Rows, columns: int) -> Value:
    """Raw outputs of one seed. Shape: (rows, P)."""
    indexed = _with_indices(graph, matrix, seed.indices, columns)
    forest, shares = Forest(indexed.width), []
    for fold, place in zip(seed.boosters, indexed.places, strict=True):
        for output, booster in enumerate(fold):
            if booster is not None:
                forest.add(booster, place)
                shares.append(np.eye(len(seed.start))[output] / len(seed.boosters))
    start = rows.zero + seed.start[None]
    if not shares:
        return start
    return start + forest.sums(graph, indexed.matrix).op("MatMul", graph.constant(np.array(shares)))


_KINDS: dict[type, Callable[[Graph, Any, Rows], Stack]] = {
    Networks: _networks,
    GLM: _glm,
    Constant: _constant,
    Trees: _trees,
    JointTrees: _joint_trees,
}
