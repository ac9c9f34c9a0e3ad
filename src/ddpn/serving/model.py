"""`ServedModel`: one version of a model folder; its answers to requests, and what it says about itself."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ddpn.distributions import discretized
from ddpn.members import label_of
from ddpn.runtime.threads import single_thread
from ddpn.serving.columns import row_model, served_columns
from ddpn.serving.schemas import REFUSALS, Row, Wanted, refusal
from ddpn.storage.model_files import read_manifest, read_unchanged
from ddpn.tables.cells import polars
from ddpn.workflow.model_folder import describe, load
from ddpn.workflow.prediction import PredictedRows, predict_rows
from ddpn.workflow.prediction_request import Request, quantile_name

#: The mass of a distribution that is not shown, on either side, and the most counts that are.
_UNSHOWN, _MOST_SHOWN = 5e-5, 400


def answers(predicted: PredictedRows, wanted: Wanted) -> list[dict[str, Any]]:
    """What a request asks for, row by row, ready for JSON."""
    predictor, outputs = predicted.predictor, wanted.outputs
    is_flagged = predictor.ood is not None and not {"ood_pvalue", "ood", "ood_reasons"}.isdisjoint(outputs)
    request = Request(
        coverage=wanted.coverage,
        quantiles=wanted.quantiles,
        pmf=wanted.pmf,
        interval_kind=wanted.interval_kind,
        pvalue=is_flagged,
        ood=predictor.ood.alpha if is_flagged and predictor.ood is not None else None,
        reasons="ood_reasons" in outputs,
    )
    with torch.no_grad(), single_thread():
        table = predicted.table(request)
        names = [*outputs, *(quantile_name(level) for level in wanted.quantiles)]
        found = {name: table[name].tolist() for name in names if name in table}
        if "ood_reasons" in outputs:
            # Without calibrated flags every unusual cell is named.
            known = table.get("ood_reason")
            found["ood_reasons"] = predictor.ood_reasons(predicted.X, days=predicted.days) if known is None else known
        if wanted.pmf is not None:
            found["pmf"] = np.stack([table[f"p{count}"] for count in range(wanted.pmf + 1)], axis=1).tolist()
        if "distribution" in outputs:
            found["distribution"] = _shown(predicted.counts)
        if "members" in outputs:
            found["members"] = _members(predicted)
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


def _shown(counts: Any) -> list[dict[str, Any]]:
    """Where nearly all mass is: probabilities of some counts, every `step`-th where there are many."""
    levels = torch.tensor([_UNSHOWN, 1.0 - _UNSHOWN], dtype=torch.float64)
    found = []
    for row, (first, last) in enumerate(counts.summary(levels).quantiles.tolist()):
        step = max(1, int((last - first) // _MOST_SHOWN) + 1)
        every = torch.arange(first, last + 1, step, dtype=torch.float64).unsqueeze(1)
        pmf = counts.rows(torch.tensor([row])).log_prob(every).exp().double().squeeze(1)
        found.append({"first": int(first), "step": step, "pmf": pmf.tolist()})
    return found


def _members(predicted: PredictedRows) -> list[list[dict[str, Any]]]:
    """What each member of the mixture predicts."""
    predictor, columns = predicted.predictor, []
    for name, member in predictor.mixed.items():
        dist = predictor.distribution(predicted.X, predicted.exposure, of=name, upper=predicted.upper)
        about = {"name": name, "label": label_of(name, member), "weight": predictor.weights[name]}
        each = zip(dist.mean.double().tolist(), _shown(discretized(dist)), strict=True)
        columns.append([{**about, "mean": mean, "distribution": shown} for mean, shown in each])
    return [list(row) for row in zip(*columns, strict=True)]


class PredictorInputs(NamedTuple):
    """What a predictor takes: the features, and exposures, upper bounds and group labels where the model has them."""

    X: Any
    exposure: np.ndarray | None
    upper: np.ndarray | None
    groups: np.ndarray | None


class ServedModel:
    """A loaded model that predicts rows of JSON.

    `columns` are those (exposure, upper) that a model saved in Python does not know. `version` is the first digits of
    the checksum of its files, and `Row` the pydantic model of its rows.
    """

    def __init__(self, name: str, path: Path, **columns: str | None) -> None:
        self.name, self.path = name, path
        folder, self.saved, checksum = read_unchanged(
            path, lambda: (load(path, mixed_only=True, **columns), describe(path), read_manifest(path)["checksum"])
        )
        self.folder, self.predictor = folder, folder.model.predictor_
        self.version = str(checksum)[:12]
        self.columns = served_columns(folder)
        self.Row = row_model(name, self.columns)
        # Of a column that is a feature and has a role, too, the feature comes first and is typical.
        self.example = {column.name: column.example for column in reversed(self.columns) if column.is_required}
        self.Row.model_config["json_schema_extra"] = {"examples": [self.example]}
        # The first prediction of a process imports and caches much.
        self.predict([([self.Row.model_validate(self.example)], Wanted())])

    def inputs(self, rows: Sequence[Row]) -> PredictorInputs:
        """Rows as the predictor takes them: those of a table that is read as a file is."""
        # Of a column that is a feature and has a role, too, the feature comes first and says how cells are read.
        columns = {column.name: column for column in reversed(self.columns) if column.is_required}
        fields = {field.alias: name for name, field in self.Row.model_fields.items()}
        frame = polars().DataFrame(
            [column.series([getattr(row, fields[name]) for row in rows]) for name, column in columns.items()]
        )
        roles = self.folder.roles
        X = roles.features(frame, report=lambda sentence: None)
        return PredictorInputs(X, roles.exposures(frame), roles.uppers(frame), roles.group_labels(frame))

    def predict(self, requests: Sequence[tuple[Sequence[Row], Wanted]]) -> list[list[dict[str, Any]] | Exception]:
        """Predict the rows of several requests together: an answer, or the error, of each."""
        try:
            return self._predicted(requests)
        except REFUSALS as error:
            if len(requests) == 1:
                return [refusal(error)]
        # One of them is to blame: the others must not fail with it.
        return [answer for request in requests for answer in self.predict([request])]

    def _predicted(self, requests: Sequence[tuple[Sequence[Row], Wanted]]) -> list[list[dict[str, Any]] | Exception]:
        inputs = self.inputs([row for rows, _ in requests for row in rows])
        batch = predict_rows(self.predictor, *inputs, days=self.folder.roles.days)
        found: list[list[dict[str, Any]] | Exception] = []
        start = 0
        for wanted, same in groupby(requests, key=lambda request: request[1]):
            sizes = [len(rows) for rows, _ in same]
            stop = start + sum(sizes)
            is_whole = stop - start == batch.dist.batch_shape[0]
            every = answers(batch if is_whole else batch.rows(slice(start, stop)), wanted)
            ends = np.cumsum(sizes).tolist()
            found += [every[end - size : end] for size, end in zip(sizes, ends, strict=True)]
            start = stop
        return found


#: Facts of the fit that are shown; paths and commands of the machine that fitted the model are not.
_SPLIT = ("how", "rows")


def about(served: ServedModel) -> dict[str, Any]:
    """Facts about a model and its columns, ready for JSON."""
    saved, predictor, roles = served.saved, served.predictor, served.folder.roles
    task = saved["task"]
    flags = "Out-of-distribution flags are not calibrated."
    if predictor.ood is not None:
        share = f"{100 * predictor.ood.alpha:.3g}%"
        expected = f"Out-of-distribution flags are set for {share} of rows like the training data."
        flags = predictor.ood.warning or expected
    members = [
        {"name": name, "weight": known["weight"], "facts": known["facts"]} for name, known in saved["members"].items()
    ]
    return {
        "name": served.name,
        "version": served.version,
        "ddpn": saved["ddpn"],
        "fitted": task.get("date"),
        "target": roles.target,
        "exposure": roles.exposure,
        "rows": None if predictor.profile is None else predictor.profile.rows,
        "split": {key: task["split"][key] for key in _SPLIT} if "split" in task else None,
        "members": members,
        "scores": task.get("scores"),
        "calibration": [predictor.calibration_words(), flags],
        "limits": _limits(served),
        "warnings": [*task["leaks"], *task["warnings"]],
        "columns": [column.as_dict() for column in served.columns if column.is_required],
        "example": served.example,
    }


def _limits(served: ServedModel) -> list[str]:
    """Sentences about where predictions do not hold."""
    found = ["Predictions hold for rows like those of the training. Rows that are flagged may be wrong by any amount."]
    ignored = () if served.predictor.profile is None else served.predictor.profile.ignored
    if ignored:
        found.append(f"The out-of-distribution flag ignores {', '.join(ignored)}, which follow time.")
    counts = served.predictor.counts
    if counts.is_bounded:
        upper = "the upper bound of each row" if counts.upper_per_row else counts.upper
        found.append(f"Counts lie between {counts.lower} and {'any number' if upper is None else upper}.")
    if served.folder.roles.exposure is not None:
        found.append(f"Counts are those of each row's exposure, {served.folder.roles.exposure!r}.")
    return found
