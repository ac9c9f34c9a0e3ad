"""Write a model as an ONNX file: raw columns, members, mixture and outputs as one graph."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ddpn.calibration.intervals import IntervalGroups
from ddpn.export.description import ENTRY, FORMAT
from ddpn.export.encoding import level_codes, read_columns
from ddpn.export.families import LARGEST
from ddpn.export.graph import Graph, Value, onnx
from ddpn.export.members import RowNodes, member_stack
from ddpn.export.mixture import Bounds, ExportedOutputs, MixtureGraph
from ddpn.export.source import ExportedModel, InputColumn, source_of
from ddpn.members.folds import copies_of, known_levels
from ddpn.networks.heads import make_head
from ddpn.predictor import MIXTURE, Predictor
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import is_integer
from ddpn.storage.files import write_bytes
from ddpn.tables.files import check_free
from ddpn.tables.kinds import number_of
from ddpn.workflow.prediction_request import Request

#: Probabilities of counts that are outputs by default: up to this quantile of the counts of all training rows, within
#: these bounds; and up to the last number where that is not known.
_QUANTILE, _FEWEST, _MOST, _USUAL = 0.999, 20, 1000, 100
#: The largest count whose probability can be an output.
_LARGEST_PMF = 10_000


def export_onnx(
    model: Any,
    path: str | PathLike[str],
    *,
    quantiles: Sequence[float] = (),
    coverage: float = 0.9,
    pmf_up_to: int | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a fitted model as one ONNX file, whole or not at all.

    The file takes the raw columns of the table, one input per column, and any number of rows. Preprocessing, all
    members of the mixture and the calibration are inside.

    Parameters
    ----------
    model : path, estimator or Predictor
        The folder of a saved model, a fitted estimator such as `CountRegressor`, or a `Predictor`.
    path : path
        The file to write.
    quantiles : sequence of float
        Levels of quantiles to have as outputs, named such as "q0.9".
    coverage : float
        The share of counts that the interval, the outputs "lower" and "upper", should contain.
    pmf_up_to : int, optional
        The largest count whose probability is an output. Default: the 99.9% quantile of the counts of the training
        rows, at least 20 and at most 1,000.
    overwrite : bool
        Whether to replace an existing file.

    Returns
    -------
    dict
        What `describe_onnx` returns.

    Raises
    ------
    ConfigError
        For a likelihood or a member that has no form in ONNX, and for counts whose quantiles pass 262,144.

    Examples
    --------
    >>> export_onnx("bikes.model", "bikes.onnx", quantiles=[0.1, 0.9])  # doctest: +SKIP
    """
    onnx()
    request = Request(coverage=coverage, quantiles=tuple(quantiles))
    if pmf_up_to is not None and not (is_integer(pmf_up_to) and 0 <= pmf_up_to <= _LARGEST_PMF):
        must = f"be a count from 0 to {_LARGEST_PMF}"
        raise ConfigError(argument="pmf_up_to", must=must, got=repr(pmf_up_to))
    target = Path(path)
    if target.exists() and not overwrite:
        raise InputError(f"{target} already exists. Choose another name, or replace it with `overwrite=True`.")
    check_free(target, overwrite)
    source = source_of(model)
    check_size(source, request)
    pmf = default_pmf(source) if pmf_up_to is None else int(pmf_up_to)
    assembled = assemble(source, request.quantiles, request.coverage, pmf)
    about = {
        "format": FORMAT,
        "ddpn": version("ddpn"),
        "inputs": [column.as_dict() for column in assembled.inputs],
        "outputs": assembled.outputs,
        "coverage": request.coverage,
        "quantiles": list(request.quantiles),
        "pmf_up_to": pmf,
        "largest_count": int(LARGEST),
        "target": source.target,
        "members": {name: source.members[name] for name in source.predictor.mixed},
        "fit": dict(source.summary),
    }
    onnx().helper.set_model_props(assembled.model, {ENTRY: json.dumps(about)})
    write_bytes(target, assembled.model.SerializeToString())
    return about


def training_counts(source: ExportedModel) -> Any:
    """The distribution of the counts of all training rows; None where the model does not know it."""
    facts: Mapping[str, Any] = source.members.get("constant", {}).get("facts", {})
    if "raw outputs" not in facts:
        return None
    name, raw = facts["likelihood"], facts["raw outputs"]
    # A cross-fitted constant has several copies, of which one says enough.
    name, raw = name[0] if isinstance(name, list) else name, raw[0] if isinstance(raw[0], list) else raw
    return None if name == "double_binomial" else make_head(name)(torch.tensor(raw, dtype=torch.float64))


def check_size(source: ExportedModel, request: Request) -> None:
    """Raise a `ConfigError` if quantiles of the training counts already lie beyond the sums of a file."""
    counts, top = training_counts(source), max(0.5 * (1.0 + request.coverage), *request.quantiles, 0.5)
    found = 0.0 if counts is None else float(counts.icdf(torch.tensor(top, dtype=torch.float64)))
    if found > LARGEST:
        raise ConfigError(
            f"Quantiles in an ONNX file must be at most {LARGEST:,.0f}, got training rows whose {top:g} quantile is "
            f"{found:,.0f}. Predict such counts with ddpn predict or ddpn serve."
        )


def default_pmf(source: ExportedModel) -> int:
    """The largest count whose probability is an output, from what the model knows about the counts of its rows."""
    upper, counts = source.predictor.counts.upper, training_counts(source)
    if upper is not None:
        return min(upper, _MOST)
    if counts is None:
        return _USUAL
    return int(min(max(float(counts.icdf(torch.tensor(_QUANTILE))), _FEWEST), _MOST))


# The whole graph: raw columns, members, mixture, outputs -------------------------------------------------------------


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


def _wanted(predictor: Predictor, quantiles: tuple[float, ...], coverage: float, pmf: int) -> ExportedOutputs:
    """Outputs, with the levels at which intervals cover what is asked."""
    groups = predictor.groups
    if groups is None or MIXTURE not in groups.levels:
        return ExportedOutputs(quantiles, np.array([predictor.interval_level(coverage)]), pmf)
    codes = np.array([*range(len(groups.names)), -1])
    levels = groups.at(coverage, MIXTURE, predictor.intervals[MIXTURE], codes)
    return ExportedOutputs(quantiles, levels, pmf, None if groups.by else groups.edges)


class _Inputs:
    """Inputs besides the columns of the model, which may be among them, and names of outputs that are still free."""

    def __init__(self, graph: Graph, source: ExportedModel, wanted: ExportedOutputs) -> None:
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
