"""Write a fitted model as an ONNX file, which computes predictions from the raw columns of a table."""

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ddpn.calibration.intervals import IntervalGroups
from ddpn.export.description import ENTRY, FORMAT
from ddpn.export.encoding import find_level_codes, read_columns
from ddpn.export.families import MAX_GRID_COUNT
from ddpn.export.graph import Graph, Value, onnx
from ddpn.export.members import RowNodes, add_member
from ddpn.export.mixture import MixtureGraph, count_output_columns
from ddpn.export.source import ExportedModel, InputColumn, read_model
from ddpn.members.folds import collect_levels, get_fold_copies
from ddpn.networks.heads import make_head
from ddpn.prediction.spec import PredictionSpec
from ddpn.predictor import MIXTURE
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import is_integer
from ddpn.storage.contents import JsonObject
from ddpn.storage.files import write_bytes
from ddpn.tables.columns import Kind
from ddpn.tables.files import check_free
from ddpn.tables.levels import parse_number_level

#: The default largest count of the pmf is this quantile of the training counts, clipped to the next two numbers; the
#: last number is used if the training counts are unknown.
_PMF_QUANTILE, _MIN_PMF_COUNT, _MAX_PMF_COUNT, _UNKNOWN_PMF_COUNT = 0.999, 20, 1000, 100
#: The largest value of `pmf_up_to`.
_MAX_REQUESTED_PMF_COUNT = 10_000


def export_onnx(
    model: Any,
    path: str | PathLike[str],
    *,
    quantiles: Sequence[float] = (),
    coverage: float = 0.9,
    pmf_up_to: int | None = None,
    overwrite: bool = False,
) -> JsonObject:
    """Write a fitted model as one ONNX file, completely or not at all.

    The file has one input per raw column of the table, and takes any number of rows. It contains the preprocessing, all
    members of the mixture, and the calibration.

    Parameters
    ----------
    model : path, estimator or Predictor
        The folder of a saved model, a fitted estimator such as `CountRegressor`, or a `Predictor`.
    path : path
        The file to write.
    quantiles : sequence of float
        Levels of quantiles, which become outputs such as "q0.9".
    coverage : float
        The share of counts that the intervals (outputs "lower" and "upper") should contain. The output
        "interval_probability" is the predicted probability of each interval.
    pmf_up_to : int, optional
        The largest count whose probability is an output, at most 10,000. Default: the upper bound of the counts, if
        there is one, else the 99.9% quantile of the counts of the training rows, at least 20; in both cases at most
        1,000.
    overwrite : bool
        Whether to replace an existing file.

    Returns
    -------
    dict
        The description that `describe_onnx` returns.

    Raises
    ------
    ConfigError
        If a likelihood or a member cannot be exported, or if requested quantiles of the training counts exceed
        262,144.
    InputError
        If the file exists and `overwrite` is False.

    Examples
    --------
    >>> export_onnx("bikes.model", "bikes.onnx", quantiles=[0.1, 0.9])  # doctest: +SKIP
    """
    onnx()
    spec = PredictionSpec(coverage=coverage, quantiles=tuple(quantiles))
    if pmf_up_to is not None and not (is_integer(pmf_up_to) and 0 <= pmf_up_to <= _MAX_REQUESTED_PMF_COUNT):
        must = f"be a count from 0 to {_MAX_REQUESTED_PMF_COUNT}"
        raise ConfigError(argument="pmf_up_to", must=must, got=repr(pmf_up_to))
    target = Path(path)
    check_free(target, overwrite)
    source = read_model(model)
    check_quantiles(source, spec)
    spec = replace(spec, pmf=choose_pmf_count(source) if pmf_up_to is None else int(pmf_up_to))
    file, inputs, outputs = build_model(source, spec)
    about = {
        "format": FORMAT,
        "ddpn": version("ddpn"),
        "inputs": [column.as_dict() for column in inputs],
        "outputs": outputs,
        "coverage": spec.coverage,
        "quantiles": list(spec.quantiles),
        "pmf_up_to": spec.pmf,
        "largest_count": int(MAX_GRID_COUNT),
        "target": source.target,
        "members": {name: source.members[name] for name in source.predictor.active_members},
        "fit": dict(source.summary),
    }
    onnx().helper.set_model_props(file, {ENTRY: json.dumps(about)})
    write_bytes(target, file.SerializeToString())
    return about


def read_training_quantile(source: ExportedModel, level: float) -> float | None:
    """Estimate the quantile of all training counts at a level, from the distribution of the member "constant".

    This member predicts the same distribution for every row, fitted to all training counts. `level` is a probability,
    such as 0.999. `source` is the model to export. Return None if the model has no such member, or if its likelihood is
    the Double Binomial.
    """
    facts: JsonObject = source.members.get("constant", {}).get("facts", {})
    if "raw outputs" not in facts:
        return None
    name, raw = facts["likelihood"], facts["raw outputs"]
    # A cross-fitted constant has several copies; one is accurate enough.
    name, raw = name[0] if isinstance(name, list) else name, raw[0] if isinstance(raw[0], list) else raw
    if name == "double_binomial":
        return None
    counts = make_head(name)(torch.tensor(raw, dtype=torch.float64))
    return float(counts.icdf(torch.tensor(level, dtype=torch.float64)))


def check_quantiles(source: ExportedModel, spec: PredictionSpec) -> None:
    """Raise a `ConfigError` if a requested quantile of the training counts is larger than ONNX files support (262,144).

    `spec` lists the requested quantiles and the coverage of intervals. If the training counts are not known, no error
    is raised.
    """
    highest_level = max(0.5 * (1.0 + spec.coverage), *spec.quantiles, 0.5)
    quantile = read_training_quantile(source, highest_level) or 0.0
    if quantile > MAX_GRID_COUNT:
        raise ConfigError(
            f"Quantiles in an ONNX file must be at most {MAX_GRID_COUNT:,.0f}, but the {highest_level:g} quantile of "
            f"the training counts is {quantile:,.0f}. Predict such counts with ddpn predict or ddpn serve."
        )


def choose_pmf_count(source: ExportedModel) -> int:
    """Choose the largest count whose probability is an output, as the default of `pmf_up_to`.

    It is the upper bound of the counts, if there is one, or else the 99.9% quantile of the training counts, but at
    least 20. It is at most 1,000. If the training counts are not known, it is 100.
    """
    if source.predictor.counts.upper is not None:
        return min(source.predictor.counts.upper, _MAX_PMF_COUNT)
    quantile = read_training_quantile(source, _PMF_QUANTILE)
    return _UNKNOWN_PMF_COUNT if quantile is None else int(min(max(quantile, _MIN_PMF_COUNT), _MAX_PMF_COUNT))


# The whole graph: raw columns, members, mixture, outputs -------------------------------------------------------------


def build_model(source: ExportedModel, spec: PredictionSpec) -> tuple[Any, list[InputColumn], dict[str, str]]:
    """Build the ONNX model of the outputs that `spec` lists, for the model `source`.

    Returns
    -------
    file : onnx.ModelProto
        The ONNX model.
    inputs : list of InputColumn
        The inputs, which are columns of the table.
    outputs : dict of str to str
        The name of the output of each quantity, such as "mean". The name differs from the quantity if an input is
        called like the quantity.
    """
    predictor, graph = source.predictor, Graph()
    counts, groups = predictor.counts, predictor.calibration.groups
    if groups is None or MIXTURE not in groups.levels:
        groups = None
        levels = np.array([predictor.calibration.interval_level(spec.coverage)])
    else:
        codes = np.array([*range(len(groups.names)), -1])
        levels = groups.at(spec.coverage, MIXTURE, predictor.calibration.intervals[MIXTURE], codes)
    spec = replace(spec, interval_kind=spec.interval_kind or predictor.interval_kind)
    widths = count_output_columns(spec)
    # A column may have a role and also be a feature.
    has_exposure = predictor.needs_exposure and not counts.upper_is_total
    group = "" if groups is None else groups.by
    roles = {source.exposure: "exposure"} if has_exposure else {}
    roles |= {source.upper: "upper"} if counts.upper_per_row else {}
    roles |= {group: "group"} if group else {}
    inputs = {column.name: column for column in source.columns}
    for name, kind in roles.items():
        inputs.setdefault(name, InputColumn(name, kind, ()))
    outputs: dict[str, str] = {}
    for name in widths:
        outputs[name] = name
        while outputs[name] in inputs:
            outputs[name] = f"predicted_{outputs[name]}"
    graph.reserved = {*inputs, *outputs.values()}
    cells = {name: graph.input(name, column.element) for name, column in inputs.items()}

    member_levels = collect_levels(predictor.active_members.values())
    # A category is an input of the file even if no member uses its levels.
    levels_by_name = {
        column.names[0]: member_levels.get(column.names[0], ())
        for column in source.columns
        if column.kind == Kind.CATEGORY
    }
    table = read_columns(graph, cells, source.columns, levels_by_name)
    rows = cells[source.columns[0].name].op("Size", kind="i")
    shape = graph.concat([rows.reshape(1), graph.constant([1])], axis=0)
    nothing = onnx().helper.make_tensor("value", onnx().TensorProto.DOUBLE, [1], [0.0])
    zero, log_exposure = shape.op("ConstantOfShape", kind="f", value=nothing), None
    if has_exposure:  # invalid exposures become NaN
        scale = cells[source.exposure]
        log_exposure = graph.where((scale > 0.0) & (scale < np.inf), scale, np.nan).log().add_axes(1)
    upper: Value | float | None = None if counts.upper is None else float(counts.upper)
    if counts.upper_per_row:
        upper_cells = cells[source.upper]
        is_valid = upper_cells.equals(upper_cells.floor()) & (upper_cells >= float(counts.lower))
        upper = graph.where(is_valid, upper_cells, np.nan).add_axes(1)
    group_codes = None if groups is None else _find_group_code(graph, cells[group], inputs[group], groups)

    row_nodes = RowNodes(table, log_exposure, zero)
    copies = {name: get_fold_copies(member) for name, member in predictor.active_members.items()}
    members = [add_member(graph, name, copy, row_nodes) for name, fold_copies in copies.items() for copy in fold_copies]
    weights = [predictor.weights[name] / len(fold_copies) for name, fold_copies in copies.items() for _ in fold_copies]
    recalibration = predictor.calibration.recalibration
    recalibration_map = recalibration.map if recalibration is not None and recalibration.is_used else None
    mixture = MixtureGraph(members, weights, counts.lower, upper, recalibration_map, spec, levels, group_codes)
    block_columns = mixture.compute_outputs(graph, rows, zero)
    parts: list[tuple[str, Value, tuple[int, ...]]] = []
    start = 0
    for name, width in widths.items():
        part = block_columns.slice(start, start + width)
        is_pmf = name == "pmf"
        parts.append((outputs[name], part if is_pmf else part.reshape(-1), (width,) if is_pmf else ()))
        start += width
    return graph.model(parts, "ddpn"), list(inputs.values()), outputs


def _find_group_code(graph: Graph, cells: Value, column: InputColumn, groups: IntervalGroups) -> Value:
    """Find the position of each row's interval group in `groups.names`. Unknown groups get the position after the last.

    `cells` has the values of the group column, shape (rows,), and `column` describes this column. If it has dates, a
    `ConfigError` is raised. Shape: (rows, 1).
    """
    if column.kind == Kind.DATE:
        raise ConfigError(
            f"Interval groups cannot be exported if they are dates, such as column {groups.by!r}. Calibrate by a "
            "column of text or numbers."
        )
    unknown = len(groups.names)
    missing = groups.names.index("missing") if "missing" in groups.names else unknown
    if column.element == "s":
        codes = find_level_codes(graph, cells, InputColumn(column.name, "group", (), by_value=True), groups.names)
        return graph.constant([*range(unknown), unknown, missing]).take(codes, axis=0).add_axes(1)
    code_of_row = graph.where(cells.is_nan(), missing, graph.constant(unknown))
    for code, value in enumerate(map(parse_number_level, groups.names)):
        if value is not None:
            code_of_row = graph.where(cells.equals(value), code, code_of_row)
    return code_of_row.add_axes(1)
