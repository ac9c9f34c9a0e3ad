"""Write a model as an ONNX file."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from ddpn.export.description import ENTRY, FORMAT
from ddpn.export.families import LARGEST
from ddpn.export.graph import onnx
from ddpn.export.source import ExportedModel, source_of
from ddpn.networks.heads import make_head
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import is_integer
from ddpn.storage.files import write_bytes
from ddpn.tables.files import check_free
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
    from ddpn.export.assembly import assemble

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
