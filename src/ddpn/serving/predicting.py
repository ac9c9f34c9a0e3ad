"""Predictions of a batch of requests: the distributions once, then what each request asks for."""

import re
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

import numpy as np
import torch

from ddpn.calibration.reasons import row_reasons
from ddpn.distributions import discretized
from ddpn.distributions.kernels.placing import DEPTH
from ddpn.predictor import MIXTURE, Predictor
from ddpn.runtime.threads import single_thread
from ddpn.serving.inputs import Inputs
from ddpn.serving.options import Wanted
from ddpn.serving.problems import Problem, RequestError
from ddpn.workflow.member_names import label_of

#: The mass of a distribution that is not shown, on either side, and the most counts that are.
_UNSHOWN, _MOST_SHOWN = 5e-5, 400
#: The largest count that a distribution may reach: beyond, neighbouring counts are the same float.
_LARGEST = 2.0**52
_DAY = re.compile(r"-?\d+(?:\.\d+)?(?:e\+\d+)?")
_COUNTS = ("median", "mode", "lower", "upper")


class Batch(NamedTuple):
    """Predicted rows: float64 values by output, and their distributions in parts (positions, distribution)."""

    inputs: Inputs
    values: dict[str, np.ndarray]
    parts: list[tuple[np.ndarray, Any]]
    predictor: Predictor


def predict_batch(predictor: Predictor, inputs: Inputs, names: frozenset[str]) -> Batch:
    """The distributions of all rows, and the outputs among `names` that do not depend on other options.

    Parameters
    ----------
    predictor : Predictor
        The model.
    inputs : Inputs
        Rows of several requests.
    names : frozenset of str
        The outputs that some request asks for.
    """
    with torch.no_grad(), single_thread(), np.errstate(all="ignore"):
        dist = predictor.distribution(inputs.table, inputs.exposure, upper=inputs.upper)
        mean = dist.mean.double()
        values = {"mean": mean.numpy()}
        if names & {"aleatoric", "epistemic", "stddev"}:
            values |= {"aleatoric": dist.aleatoric.double().numpy(), "epistemic": dist.epistemic.double().numpy()}
            values["stddev"] = np.sqrt(values["aleatoric"] + values["epistemic"])
        _check_size(*(np.abs(each) for each in values.values()))
        counts = discretized(dist)
        _check_size(counts.bracket(DEPTH)[1].double().numpy())
        parts = [(np.arange(len(mean)), counts)]
        own: dict[str, Any] = {}
        if "median" in names:
            own["median"] = lambda part: part.icdf(torch.tensor(0.5, dtype=torch.float64))
        if "mode" in names:
            own["mode"] = lambda part: part.mode
        for name, of in own.items():
            values[name] = _gathered(parts, len(mean), of)
        if names & {"ood_pvalue", "ood", "ood_reasons"} and predictor.ood is not None:
            values["ood_pvalue"] = _pvalue(predictor, inputs, dist)
            values["ood"] = predictor.ood.is_ood(values["ood_pvalue"])
    return Batch(inputs, values, parts, predictor)


def _gathered(parts: Sequence[tuple[np.ndarray, Any]], size: int, of: Any) -> np.ndarray:
    found = np.empty(size)
    for index, part in parts:
        found[index] = of(part).double().numpy()
    return found


def _pvalue(predictor: Predictor, inputs: Inputs, dist: Any) -> np.ndarray:
    assert predictor.ood is not None
    uses_features = predictor.profile is not None and len(predictor.ood.features)
    features = predictor.profile.measure(inputs.table).score if predictor.profile and uses_features else None
    return predictor.ood.pvalue([dist], features)


def _check_size(first: np.ndarray, *others: np.ndarray) -> None:
    """Raise a `RequestError` for rows whose counts are too large to be searched for quantiles, or not finite.

    The first values are compared with the largest count, the others (variances) are finite.
    """
    bad = ~(first <= _LARGEST) | ~np.all([np.isfinite(each) for each in (first, *others)], axis=0)
    if bad.any():
        words = "rows[{}] has a prediction that is too large. Check the units of its numbers, above all the exposure."
        raise RequestError([Problem(words.format(i), row=i) for i in np.flatnonzero(bad)[:20].tolist()])


def answers(batch: Batch, rows: slice, wanted: Wanted, days: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    """What a request asks for, row by row, ready for JSON.

    Parameters
    ----------
    batch : Batch
        The predicted rows of several requests.
    rows : slice
        Those of this request.
    wanted : Wanted
        What it asks for.
    days : frozenset of str
        Columns of days since 1970, which reasons show as dates.
    """
    index = np.arange(len(batch.values["mean"]))[rows]
    parts = _parts_of(batch.parts, rows)
    with torch.no_grad(), single_thread():
        columns = {name: batch.values[name][rows] for name in wanted.outputs if name in batch.values}
        if "lower" in wanted.outputs or "upper" in wanted.outputs:
            columns |= dict(zip(("lower", "upper"), _intervals(batch, parts, index, wanted.coverage), strict=True))
        for level in wanted.quantiles:
            columns[f"q{level:g}"] = _gathered(
                parts, len(index), lambda part, q=level: part.icdf(torch.tensor(q, dtype=torch.float64))
            )
        lists = {name: _plain(name, columns[name]) for name in _ordered(columns, wanted)}
        if "ood_reasons" in wanted.outputs:
            lists["ood_reasons"] = [[with_dates(words, days) for words in own] for own in _reasons(batch, rows)]
        if wanted.pmf is not None:
            lists["pmf"] = _pmf(parts, len(index), wanted.pmf)
        if "distribution" in wanted.outputs:
            lists["distribution"] = _shown(parts, len(index))
        if "members" in wanted.outputs:
            lists["members"] = _members(batch, rows)
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _ordered(columns: dict[str, np.ndarray], wanted: Wanted) -> list[str]:
    asked = [name for name in wanted.outputs if name in columns]
    return asked + [name for name in columns if name.startswith("q") and name not in asked]


def _parts_of(parts: Sequence[tuple[np.ndarray, Any]], rows: slice) -> list[tuple[np.ndarray, Any]]:
    """The distributions of one request's rows, at their positions in it."""
    found = []
    for index, part in parts:
        own = np.flatnonzero((index >= rows.start) & (index < rows.stop))
        if len(own):
            whole = len(own) == len(index)
            found.append((index[own] - rows.start, part if whole else part.rows(torch.from_numpy(own))))
    return found


def _intervals(
    batch: Batch, parts: Sequence[tuple[np.ndarray, Any]], index: np.ndarray, coverage: float
) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.empty(len(index)), np.empty(len(index))
    for own, part in parts:
        labels = None if batch.inputs.groups is None else batch.inputs.groups[index[own]]
        ends = batch.predictor.interval(part, coverage, labels=labels)
        low[own], high[own] = (end.double().numpy() for end in ends)
    return low, high


def _plain(name: str, values: np.ndarray) -> list[Any]:
    """Counts as integers, of any size; flags as booleans; all else as it is."""
    if name in _COUNTS or name.startswith("q"):
        return [int(value) for value in values.tolist()]
    return values.tolist()


def _reasons(batch: Batch, rows: slice) -> list[list[str]]:
    """Why each row is unusual; empty where it is not flagged."""
    table, size = batch.inputs.table.rows(rows), rows.stop - rows.start
    if "ood" not in batch.values:
        return (
            [[] for _ in range(size)]
            if batch.predictor.profile is None
            else row_reasons(batch.predictor.profile, table)
        )
    flagged = batch.values["ood"][rows]
    found: list[list[str]] = [[] for _ in range(size)]
    chosen = np.flatnonzero(flagged)
    if len(chosen):
        reasons = batch.predictor.ood_reasons(table.rows(chosen), np.ones(len(chosen), dtype=bool))
        for row, own in zip(chosen.tolist(), reasons, strict=True):
            found[row] = own
    return found


def with_dates(reason: str, days: frozenset[str]) -> str:
    """A reason about a column of days with dates in place of numbers.

    >>> with_dates("'start day' above the training range: 19600 > 19590", frozenset({"start day"}))
    "'start day' above the training range: 2023-08-31 > 2023-08-21"
    """
    for name in days:
        if repr(name) in reason:
            return repr(name).join(_DAY.sub(_as_date, part) for part in reason.split(repr(name)))
    return reason


def _as_date(found: re.Match[str]) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=int(float(found[0])))).isoformat()
    except OverflowError:
        return found[0]


def _pmf(parts: Sequence[tuple[np.ndarray, Any]], size: int, last: int) -> list[list[float]]:
    found = np.zeros((size, last + 1))
    for own, part in parts:
        found[own] = _probabilities(part, np.arange(last + 1))
    return found.tolist()


def _probabilities(part: Any, counts: np.ndarray) -> np.ndarray:
    """Probabilities of counts. Shape: (rows, counts)."""
    y = torch.from_numpy(counts.astype(np.float64)).unsqueeze(1)
    return part.log_prob(y).exp().double().numpy().T


def _shown(parts: Sequence[tuple[np.ndarray, Any]], size: int) -> list[dict[str, Any]]:
    """Where nearly all mass is: probabilities of some counts, every `step`-th where there are many."""
    found: list[dict[str, Any]] = [{} for _ in range(size)]
    for own, part in parts:
        ends = [part.icdf(torch.tensor(level)).double().numpy() for level in (_UNSHOWN, 1.0 - _UNSHOWN)]
        for at, (place, first, last) in enumerate(zip(own.tolist(), *(end.tolist() for end in ends), strict=True)):
            step = max(1, int((last - first) // _MOST_SHOWN) + 1)
            counts = np.arange(first, last + 1, step)
            row = part.rows(torch.tensor([at]))
            pmf = _probabilities(row, counts.astype(np.int64))[0]
            found[place] = {"first": int(first), "step": step, "pmf": pmf.tolist()}
    return found


def _members(batch: Batch, rows: slice) -> list[list[dict[str, Any]]]:
    """What each member of the mixture predicts."""
    predictor, inputs = batch.predictor, batch.inputs
    table = inputs.table.rows(rows)
    exposure, upper = (None if values is None else values[rows] for values in (inputs.exposure, inputs.upper))
    found: list[list[dict[str, Any]]] = [[] for _ in range(table.shape[0])]
    for name, member in predictor.mixed.items():
        dist = predictor.distribution(table, exposure, of=name, upper=upper)
        mean = dist.mean.double()
        about = {"name": name, "label": label_of(name, member), "weight": predictor.weights[name]}
        shown = _shown([(np.arange(len(mean)), discretized(dist))], len(mean))
        for own, value, distribution in zip(found, mean.tolist(), shown, strict=True):
            own.append({**about, "mean": value, "distribution": distribution})
    return found


__all__ = ["MIXTURE", "Batch", "answers", "predict_batch"]
