"""The whole graph: raw columns, members, mixture, outputs."""

from typing import Any, NamedTuple

import numpy as np

from ddpn.calibration.intervals import IntervalGroups
from ddpn.export.graph import Graph, Value, onnx
from ddpn.export.levels import Wanted
from ddpn.export.members import RowNodes, member_stack
from ddpn.export.mixture import Bounds, MixtureGraph
from ddpn.export.schema import InputColumn
from ddpn.export.source import ExportedModel
from ddpn.export.table import level_codes, read_columns
from ddpn.members.folds import copies_of, known_levels
from ddpn.predictor import MIXTURE, Predictor
from ddpn.runtime.errors import ConfigError
from ddpn.tables.kinds import number_of


class Assembled(NamedTuple):
    """A finished graph, its inputs, and the names of its outputs by what they are."""

    model: Any
    inputs: list[InputColumn]
    outputs: dict[str, str]


def assemble(source: ExportedModel, quantiles: tuple[float, ...], coverage: float, pmf: int) -> Assembled:
    """Build the graph of a model."""
    predictor, graph = source.predictor, Graph()
    wanted = _wanted(predictor, quantiles, coverage, pmf)
    inputs = _Inputs(graph, source, wanted)
    names = [name for column in source.columns for name in column.names]
    known = dict(zip(names, known_levels(predictor.mixed.values(), len(names)), strict=True))
    # A category whose levels no member of the mixture distinguishes still is an input.
    levels = {column.names[0]: known[column.names[0]] for column in source.columns if column.kind == "category"}
    table = read_columns(graph, source.columns, levels)
    rows = graph.value(Value(graph, source.columns[0].name, source.columns[0].element)).op("Size", kind="i")
    shape = graph.concat([rows.reshaped(1), graph.constant([1])], axis=0)
    nothing = onnx().helper.make_tensor("value", onnx().TensorProto.DOUBLE, [1], [0.0])
    zero = shape.op("ConstantOfShape", kind="f", value=nothing)
    read = RowNodes(table, inputs.log_exposure(), zero)
    copies = {name: copies_of(member) for name, member in predictor.mixed.items()}
    stacks = [member_stack(graph, name, copy, read) for name, own in copies.items() for copy in own]
    weights = [predictor.weights[name] / len(own) for name, own in copies.items() for _ in own]
    change = predictor.recalibrations[MIXTURE].map if predictor.is_recalibrated() else None
    mixture = MixtureGraph(stacks, weights, inputs.bounds(), change, wanted, inputs.group())
    found = mixture.columns(graph, rows, zero)
    outputs: list[tuple[str, Value, tuple[int, ...]]] = []
    start = 0
    for name, width in wanted.names.items():
        part = found.at(start, start + width)
        is_pmf = name == "pmf"
        outputs.append((inputs.outputs[name], part if is_pmf else part.reshaped(-1), (width,) if is_pmf else ()))
        start += width
    return Assembled(graph.model(outputs, "ddpn"), inputs.all, inputs.outputs)


def _wanted(predictor: Predictor, quantiles: tuple[float, ...], coverage: float, pmf: int) -> Wanted:
    """Outputs, with the levels at which intervals cover what is asked."""
    groups = predictor.groups
    if groups is None or MIXTURE not in groups.levels:
        return Wanted(quantiles, np.array([predictor.interval_level(coverage)]), pmf)
    codes = np.array([*range(len(groups.names)), -1])
    levels = groups.at(coverage, MIXTURE, predictor.intervals[MIXTURE], codes)
    return Wanted(quantiles, levels, pmf, None if groups.by else groups.edges)


class _Inputs:
    """Inputs besides the columns of the model, which may be among them, and names of outputs that are still free."""

    def __init__(self, graph: Graph, source: ExportedModel, wanted: Wanted) -> None:
        self._graph, self._source = graph, source
        self.all = list(source.columns)
        counts, groups = source.predictor.counts, source.predictor.groups
        if source.predictor.needs_exposure and not counts.upper_is_total:
            self._add(source.exposure, "exposure")
        if counts.upper_per_row:
            self._add(source.upper, "upper")
        self._groups = groups if groups is not None and groups.by and MIXTURE in groups.levels else None
        if self._groups is not None:
            self._add(self._groups.by, "group")
        taken = {column.name for column in self.all}
        self.outputs = {}
        for name in wanted.names:
            self.outputs[name] = name
            while self.outputs[name] in taken:
                self.outputs[name] = f"predicted_{self.outputs[name]}"
        graph.reserved = taken | set(self.outputs.values())

    def _add(self, name: str, kind: str) -> None:
        if name not in {column.name for column in self.all}:
            self.all.append(InputColumn(name, kind, ()))

    def _value(self, name: str) -> tuple[Value, InputColumn]:
        """The input of this name, which may be a column of the model, too."""
        column = next(each for each in self.all if each.name == name)
        if name in dict(self._graph.inputs):
            return Value(self._graph, name, column.element), column
        return self._graph.input(name, column.element), column

    def log_exposure(self) -> Value | None:
        """The logarithm of the exposure, NaN where it is not positive and finite. Shape: (rows, 1)."""
        predictor = self._source.predictor
        if not predictor.needs_exposure or predictor.counts.upper_is_total:
            return None
        scale, _ = self._value(self._source.exposure)
        good = (scale > 0.0) & (scale < np.inf)
        return self._graph.where(good, scale, np.nan).log().unsqueezed(1)

    def bounds(self) -> Bounds:
        """The range of possible counts."""
        counts = self._source.predictor.counts
        if not counts.upper_per_row:
            return Bounds(counts.lower, None if counts.upper is None else float(counts.upper))
        upper, _ = self._value(self._source.upper)
        good = upper.equals(upper.floor()) & (upper >= float(counts.lower))
        return Bounds(counts.lower, self._graph.where(good, upper, np.nan).unsqueezed(1))

    def group(self) -> Value | None:
        """The position of each row's group, the last of which is for rows in none. Shape: (rows, 1)."""
        groups = self._groups
        if groups is None:
            return None
        cells, column = self._value(groups.by)
        if column.kind == "date":
            raise ConfigError(f"Groups of intervals to export must not be dates, got the column {groups.by!r}.")
        if column.element == "s":
            own = InputColumn(column.name, "group", (), by_value=True)
            codes = level_codes(self._graph, cells, own, groups.names)
            return self._graph.constant(_places(groups)).take(codes, axis=0).unsqueezed(1)
        return self._numeric_group(cells, groups)

    def _numeric_group(self, cells: Value, groups: IntervalGroups) -> Value:
        """Groups by a column of numbers."""
        graph, places = self._graph, _places(groups)
        known = {number_of(name): code for code, name in enumerate(groups.names) if number_of(name) is not None}
        found = graph.where(cells.is_nan(), places[-1], graph.constant(len(groups.names)))
        for value, code in known.items():
            assert value is not None
            found = graph.where(cells.equals(value), code, found)
        return found.unsqueezed(1)


def _places(groups: IntervalGroups) -> list[int]:
    """The positions of the groups, of unknown ones, and of missing ones, which may be a group."""
    unknown = len(groups.names)
    missing = groups.names.index("missing") if "missing" in groups.names else unknown
    return [*range(unknown), unknown, missing]
