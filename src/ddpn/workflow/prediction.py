"""Predict the rows of a table with a saved model.

The table of predictions is that of the command line, the server, the cluster and MLflow; ONNX files are compared with
it. It has one row per predicted row, and these columns in this order:

mean
    The expected count, float64 like all columns that are not counts.
median, mode
    The smallest count with at least half of the mass below or at it; the most probable count.
lower, upper
    The narrowest (or, on request, central) interval that contains the count with a probability of at least
    `Request.coverage`, both ends included; calibrated if the model has calibrated intervals.
interval_probability
    The probability of the interval by the row's own distribution. As counts are integers, it is more than asked.
aleatoric, epistemic, stddev
    The variance that remains if the members agree, the variance of their means, and the square root of their sum.
q0.1, ...
    Quantiles, counts, one column per level of `Request.quantiles`.
p0, p1, ...
    Probabilities of the counts 0 to `Request.pmf`.
ood_pvalue
    The share of rows like the training rows that are at least as unusual; only of models with calibrated
    out-of-distribution scores.
ood, ood_reason
    Whether `ood_pvalue` is at most `Request.ood`, and a list of reasons, empty if not; only on request.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ddpn.calibration.ood import TableSummary, check_alpha
from ddpn.distributions import discretized
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.checks import RowError, rows_named
from ddpn.rows.count_rows import BLOCK, take_rows
from ddpn.runtime.threads import single_thread
from ddpn.tables.files import polars
from ddpn.workflow.model_folder import ModelFolder
from ddpn.workflow.prediction_request import Request, quantile_name

#: The largest count that a distribution may reach: beyond, neighbouring counts are the same float.
_LARGEST = 2.0**52


@dataclass(frozen=True, eq=False)
class PredictedRows:
    """Rows with their predicted distributions, which tables for several requests can be made from.

    `of` is "mixture" or the member that predicts, `dist` what it predicts, of batch shape (rows,). `score` is how
    unusual the features of each row are, if that was measured before, and `days` are columns of days since 1970, which
    reasons show as dates.
    """

    predictor: Predictor
    X: Any
    exposure: np.ndarray | None
    upper: np.ndarray | None
    groups: np.ndarray | None
    of: str
    dist: Any
    score: np.ndarray | None
    days: frozenset[str] = frozenset()

    def rows(self, index: slice) -> Self:
        """Some of the rows, by their positions."""
        vectors: dict[str, Any] = {
            name: None if (values := getattr(self, name)) is None else values[index]
            for name in ("exposure", "upper", "groups", "score")
        }
        positions = torch.arange(self.dist.batch_shape[0])[index]
        return replace(self, X=take_rows(self.X, index), dist=self.dist.rows(positions), **vectors)

    @property
    def counts(self) -> Any:
        """The distributions of counts: what is predicted by a Normal is rounded."""
        return discretized(self.dist)

    def table(self, request: Request) -> dict[str, Any]:
        """The columns by name, as above; raises a `RowError` for rows whose counts are too large."""
        with single_thread(), torch.no_grad(), np.errstate(all="ignore"):
            found: dict[str, Any] = self._of_distributions(request)
            ood = self.predictor.ood
            if ood is not None and (request.pvalue or request.ood is not None):
                known = self.score
                found["ood_pvalue"] = self.predictor.ood_pvalue(self.X) if known is None else ood.pvalue(known)
        if request.ood is not None:
            flagged = self.predictor.calibrated_ood.is_ood(found["ood_pvalue"], request.ood)
            found["ood"] = flagged
            if request.reasons:
                rows = np.flatnonzero(flagged)
                known = np.ones(len(rows), dtype=bool)
                own = self.predictor.ood_reasons(take_rows(self.X, rows), known, self.days) if len(rows) else []
                reasons = dict(zip(rows.tolist(), own, strict=True))
                found["ood_reason"] = [reasons.get(row, []) for row in range(len(flagged))]
        return found

    def _of_distributions(self, request: Request) -> dict[str, np.ndarray]:
        known = self.predictor.described(
            self.dist, request.coverage, self.of, self.groups, request.quantiles, request.interval_kind
        )
        low, high, probability = known.interval
        variance = known.aleatoric + known.epistemic
        _check_size(known.mean, variance)
        _check_size(torch.stack([high, *known.quantiles.unbind(1)]).amax(0))
        columns: dict[str, Tensor] = {"mean": known.mean}
        integers = {"median": known.median, "mode": known.mode, "lower": low, "upper": high}
        columns |= integers | {"interval_probability": probability}
        columns |= {"aleatoric": known.aleatoric, "epistemic": known.epistemic, "stddev": variance.sqrt()}
        quantiles = known.quantiles.unbind(1)
        more = {quantile_name(at): values for at, values in zip(request.quantiles, quantiles, strict=True)}
        columns |= more
        if request.pmf is not None:
            every = torch.arange(request.pmf + 1, dtype=torch.float64).unsqueeze(1)
            columns |= {f"p{count}": values for count, values in enumerate(self.counts.log_prob(every).exp())}
        kinds = dict.fromkeys([*integers, *more], np.int64)
        return {name: own.double().numpy().astype(kinds.get(name, np.float64)) for name, own in columns.items()}


def _check_size(counts: Tensor, variance: Tensor | None = None) -> None:
    """Raise a `RowError` for rows whose counts are too large to have quantiles, or whose variance is not finite."""
    bad = ~(counts.double() <= _LARGEST).numpy()
    if variance is not None:
        bad |= ~variance.isfinite().numpy()
    if bad.any():
        remedy = ". Check the units of the numbers, above all the exposure."
        raise RowError("Predicted counts must be below 2^52, got a prediction that is too large", bad, remedy)


def predict_rows(
    predictor: Predictor,
    X: Any,
    exposure: np.ndarray | None = None,
    upper: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    *,
    of: str = MIXTURE,
    summary: TableSummary | None = None,
    days: frozenset[str] = frozenset(),
) -> PredictedRows:
    """Predict the distribution of every row; `summary` counts what is unusual about the rows."""
    X = predictor.prepared(X)
    measured = None if predictor.profile is None or summary is None else predictor.profile.measure(X)
    with single_thread(), torch.no_grad(), np.errstate(all="ignore"):
        dist = predictor.distribution(X, exposure, of, upper)
    if summary is not None and measured is not None:
        summary.add(measured.states)
    score = None if measured is None else measured.score
    return PredictedRows(predictor, X, exposure, upper, groups, of, dist, score, days)


def prediction_table(
    predictor: Predictor,
    X: Any,
    request: Request,
    exposure: np.ndarray | None = None,
    upper: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The table of predictions, as columns by name.

    Parameters
    ----------
    predictor, X, exposure, upper, groups
        As for `PredictedRows`.
    request : Request
        What the table should have.
    **options
        `summary` and `days` of `predict_rows`.
    """
    of = request.member or MIXTURE
    return predict_rows(predictor, X, exposure, upper, groups, of=of, **options).table(request)


# Tables block by block ------------------------------------------------------------------------------------------------

#: Below so many rows, flagged rows are counted: a percentage would say little.
_FEW_ROWS = 100


class Findings:
    """What is unusual about a table, counted block by block; counts of blocks that were predicted before are merged."""

    def __init__(self, predictor: Predictor, request: Request) -> None:
        self._predictor = predictor
        self.summary = None if predictor.profile is None else TableSummary(predictor.profile)
        self._uncalibrated = request.member if request.member not in predictor.intervals else None
        self._alpha = None if predictor.ood is None else predictor.ood.alpha if request.ood is None else request.ood
        self._rows = self._flagged = 0
        self._groups: Counter[str] = Counter()
        self._notes: dict[str, str] = {}

    def add(self, predictions: Any, groups: np.ndarray | None) -> None:
        """Count the predictions of a block, and the groups of its rows."""
        self._rows += predictions.height
        if self._alpha is not None and self._predictor.ood is not None:
            flags = self._predictor.ood.is_ood(predictions["ood_pvalue"].to_numpy(), self._alpha)
            self._flagged += int(flags.sum())
        self._groups.update([] if groups is None else groups.tolist())

    def note(self, sentence: str) -> None:
        """Keep a sentence about how the cells of a column were read: the first about each column."""
        self._notes.setdefault(sentence.partition(":")[0], sentence)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        states = None if self.summary is None else self.summary.states.tolist()
        return {
            "rows": self._rows,
            "flagged": self._flagged,
            "groups": dict(self._groups),
            "notes": self._notes,
            "states": states,
        }

    def merge(self, known: dict[str, Any]) -> None:
        """Add the counts of `as_dict` of other blocks, which come after those that were counted before."""
        self._rows, self._flagged = self._rows + known["rows"], self._flagged + known["flagged"]
        self._groups.update(known["groups"])
        self._notes = known["notes"] | self._notes
        if self.summary is not None:
            self.summary.add(np.asarray(known["states"], dtype=np.int64))

    def sentences(self) -> list[str]:
        """Sentences about what is unusual in the table, and the share of rows that is flagged."""
        found = list(self._notes.values())
        if self._uncalibrated is not None:
            found.append(f"The intervals of the member {self._uncalibrated} are not calibrated.")
        if self._predictor.groups is not None and self._groups:
            labels = np.array(list(self._groups.elements()), dtype=object)
            found.append(self._predictor.groups.unseen(labels))
        found += [] if self.summary is None else self.summary.sentences()
        if self._predictor.ood is not None and self._predictor.ood.warning and self._alpha == self._predictor.ood.alpha:
            found.append(self._predictor.ood.warning)
        elif self._alpha is not None and self._rows:
            expected = f"{100 * self._alpha:.3g}% expected of rows like the training data"
            few = self._rows < _FEW_ROWS
            share = f"{self._flagged} of {self._rows}" if few else f"{self._flagged / self._rows:.1%} of"
            found.append(f"{share} rows are flagged as out-of-distribution ({expected}).")
        return [sentence for sentence in found if sentence]


def predict(
    folder: ModelFolder,
    frame: Any,
    request: Request,
    on_finding: Callable[[str], None] = lambda sentence: None,
) -> Any:
    """Predict every row of a table.

    Parameters
    ----------
    folder : ModelFolder
        The model.
    frame : polars DataFrame
        The table.
    request : Request
        Which columns to predict.
    on_finding : callable
        Called with every sentence about unusual rows.

    Returns
    -------
    polars DataFrame
    """
    request = checked_request(folder.model.predictor_, request)
    findings = Findings(folder.model.predictor_, request)
    found = predict_block(folder, frame, request, findings)
    for sentence in findings.sentences():
        on_finding(sentence)
    return found


def checked_request(predictor: Predictor, request: Request) -> Request:
    """The request for a model; raises an error for what it cannot do, before the work."""
    request = request.for_model(predictor.members, predictor.ood is not None)
    if request.ood is not None:
        check_alpha(request.ood, len(predictor.calibrated_ood.scores))
    return request


def predict_block(
    folder: ModelFolder,
    frame: Any,
    request: Request,
    findings: Findings,
    first: int = 0,
    note: Callable[[str], None] | None = None,
) -> Any:
    """Predict some rows of a table; what is unusual about them is added to `findings`.

    `first` is the number of rows before them, and `note` takes sentences about cells that cannot be read, which are
    warnings by default.
    """
    roles, predictor = folder.roles, folder.model.predictor_
    with rows_named(np.arange(first, first + frame.height) + 1):
        X, groups = predictor.prepared(roles.features(frame, note)), roles.group_labels(frame)
        exposure, upper = roles.exposures(frame, first), roles.uppers(frame, first)
    parts = []
    for start in range(0, frame.height, BLOCK):
        rows = slice(start, start + BLOCK)
        known = (None if values is None else values[rows] for values in (exposure, upper, groups))
        with rows_named(np.arange(first + start, first + frame.height) + 1):
            columns = prediction_table(
                predictor, take_rows(X, rows), request, *known, summary=findings.summary, days=roles.days
            )
        if "ood_reason" in columns:  # as text, null where there is none
            words = ["; ".join(own) or None for own in columns["ood_reason"]]
            columns["ood_reason"] = polars().Series(words, dtype=polars().String)
        parts.append(polars().DataFrame(columns))
    predictions = polars().concat(parts)
    findings.add(predictions, groups)
    return _beside(frame, predictions) if request.keep else predictions


def _beside(frame: Any, predictions: Any) -> Any:
    """The table followed by the predictions, whose names get a prefix where the table has them already."""
    names: dict[str, str] = {}
    for name in predictions.columns:
        new = name
        while new in frame.columns or new in names.values():
            new = f"predicted_{new}"
        names[name] = new
    return polars().concat([frame, predictions.rename(names)], how="horizontal")
