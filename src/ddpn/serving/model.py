"""`ServedModel`: a loaded model that predicts the rows of requests, and its description for clients."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
import torch

from ddpn.distributions import CountDistribution
from ddpn.members import format_member_label
from ddpn.prediction.prediction import Prediction
from ddpn.prediction.spec import PredictionSpec
from ddpn.predictor import Predictor
from ddpn.rows.count_rows import take_rows
from ddpn.runtime.threads import single_thread
from ddpn.serving.columns import list_columns, make_row_model
from ddpn.serving.schemas import DEFAULT_OUTPUTS, PREDICTION_ERRORS, Row, to_request_error
from ddpn.storage.contents import JsonObject
from ddpn.storage.model_files import read_consistently
from ddpn.workflow.model_folder import ModelFolder, SavedModel

#: The probability that is left out at each end of a distribution, and the most counts that are listed.
_HIDDEN_MASS, _MAX_LISTED_COUNTS = 5e-5, 400


class PredictorInputs(NamedTuple):
    """The arguments of `Predictor.predict` for some rows: features, exposures, upper bounds and interval groups.

    `X` has the converted features. The other arguments are arrays with one value per row, or None if the model does not
    need them.
    """

    X: Any
    exposure: np.ndarray | None
    upper: np.ndarray | None
    groups: np.ndarray | None

    def rows(self, index: slice) -> Self:
        """Return the inputs of the rows in the slice `index`."""
        vectors = (None if values is None else values[index] for values in self[1:])
        return type(self)(take_rows(self.X, index), *vectors)


#: The default outputs of a request.
DEFAULT_SPEC = PredictionSpec(columns=DEFAULT_OUTPUTS)


def answer_rows(
    predictor: Predictor, inputs: PredictorInputs, prediction: Prediction, spec: PredictionSpec
) -> list[JsonObject]:
    """Convert predictions to the JSON answer: one dict per row, with the outputs that `spec` lists.

    `inputs` are the rows that were predicted. They are predicted again by each model of the mixture if `spec` lists the
    output "members".
    """
    columns = prediction.to_columns(spec)
    if spec.pmf is not None:
        columns["pmf"] = np.stack([np.asarray(columns.pop(f"p{count}")) for count in range(spec.pmf + 1)], axis=1)
    if "ood_reason" in columns:
        columns["ood_reasons"] = columns.pop("ood_reason")
    answer = {name: values.tolist() if isinstance(values, np.ndarray) else values for name, values in columns.items()}
    with single_thread():
        if "distribution" in spec.columns:
            answer["distribution"] = _list_probabilities(prediction.counts)
        if "members" in spec.columns:
            answer["members"] = _predict_members(predictor, inputs)
    return [dict(zip(answer, row, strict=True)) for row in zip(*answer.values(), strict=True)]


def _list_probabilities(counts: CountDistribution) -> list[JsonObject]:
    """List the probabilities of counts for each row. Counts with negligible mass, at both ends, are left out.

    The result for a row is a dict {"first": count, "step": step, "pmf": [...]} with the probabilities of the counts
    first, first + step, first + 2 step, ... The step is 1 unless there are more than 400 counts.
    """
    levels = torch.tensor([_HIDDEN_MASS, 1.0 - _HIDDEN_MASS], dtype=torch.float64)
    rows = []
    for row, (first, last) in enumerate(counts.summary(levels).quantiles.tolist()):
        step = max(1, int((last - first) // _MAX_LISTED_COUNTS) + 1)
        every = torch.arange(first, last + 1, step, dtype=torch.float64).unsqueeze(1)
        pmf = counts.rows(torch.tensor([row])).log_prob(every).exp().double().squeeze(1)
        rows.append({"first": int(first), "step": step, "pmf": pmf.tolist()})
    return rows


def _predict_members(predictor: Predictor, inputs: PredictorInputs) -> list[list[JsonObject]]:
    """Predict rows with each model of the mixture (member). For each row, return a list with one dict per member."""
    columns = []
    for name, member in predictor.active_members.items():
        prediction = predictor.predict(inputs.X, inputs.exposure, inputs.upper, member=name)
        facts = {"name": name, "label": format_member_label(name, member), "weight": predictor.weights[name]}
        pairs = zip(prediction.mean.tolist(), _list_probabilities(prediction.counts), strict=True)
        columns.append([{**facts, "mean": mean, "distribution": masses} for mean, masses in pairs])
    return [list(row) for row in zip(*columns, strict=True)]


def _load(path: Path, columns: dict[str, str | None]) -> tuple[SavedModel, ModelFolder]:
    saved = SavedModel(path, **columns)
    return saved, saved.load(mixed_only=True)


class ServedModel:
    """A loaded version of a model folder, which predicts the rows of requests.

    The keyword arguments `exposure` and `upper` name the columns of the exposure and of the upper bound. They are
    needed if the model was saved in Python, because such a model does not store these names.

    Among the attributes, `columns` are the columns of requests, `Row` is the pydantic model of a row, and `example` is
    a typical row. `version` is the beginning of the checksum of the model's files.
    """

    def __init__(self, name: str, path: Path, **columns: str | None) -> None:
        self.name, self.path = name, path
        saved, folder = read_consistently(path, lambda: _load(path, columns))
        self.folder, self.predictor, self.about = folder, folder.model.predictor_, saved.describe()
        self.version = str(saved.manifest["checksum"])[:12]
        self.columns = list_columns(folder)
        self.Row = make_row_model(name, self.columns)
        # Reversed, so that for a column that is both a feature and a role, the feature provides the example.
        self.example = {column.name: column.example for column in reversed(self.columns) if column.is_required}
        self.Row.model_config["json_schema_extra"] = {"examples": [self.example]}
        # A first prediction, which imports modules and fills caches.
        self.predict([([self.Row.model_validate(self.example)], DEFAULT_SPEC)])

    def parse_rows(self, rows: Sequence[Row]) -> PredictorInputs:
        """Convert validated rows to the arguments of the predictor. Cells are interpreted like the cells of a file."""
        # Reversed, so that for a column that is both a feature and a role, the feature determines how cells are read.
        columns = {column.name: column for column in reversed(self.columns) if column.is_required}
        fields = {field.alias: name for name, field in self.Row.model_fields.items()}
        frame = pl.DataFrame(
            [column.to_series([getattr(row, fields[name]) for row in rows]) for name, column in columns.items()]
        )
        roles = self.folder.roles
        X = roles.parse(frame, report=lambda sentence: None)
        return PredictorInputs(
            X, roles.read_exposure(frame), roles.read_upper(frame), roles.read_interval_groups(frame)
        )

    def predict(self, requests: Sequence[tuple[Sequence[Row], PredictionSpec]]) -> list[list[JsonObject] | Exception]:
        """Predict several requests together, which is faster than one after the other.

        Each request is a pair of rows and a `PredictionSpec`. The result of a request is either a list with one dict
        per row, or an error.
        """
        try:
            return self._predict_together(requests)
        except PREDICTION_ERRORS as error:
            if len(requests) == 1:
                return [to_request_error(error)]
        # Predict each request separately, so that only invalid ones fail.
        return [answer for request in requests for answer in self.predict([request])]

    def _predict_together(
        self, requests: Sequence[tuple[Sequence[Row], PredictionSpec]]
    ) -> list[list[JsonObject] | Exception]:
        """Predict all requests in one call of the predictor. If any row of any request is invalid, raise an error."""
        inputs = self.parse_rows([row for rows, _ in requests for row in rows])
        prediction = replace(self.predictor.predict(*inputs), days=self.folder.roles.dates.days)
        answers: list[list[JsonObject] | Exception] = []
        start = 0
        for spec, same in groupby(requests, key=lambda request: request[1]):
            sizes = [len(rows) for rows, _ in same]
            part = slice(start, start + sum(sizes))
            is_whole = sum(sizes) == len(prediction)
            some = (inputs, prediction) if is_whole else (inputs.rows(part), prediction[part])
            rows = answer_rows(self.predictor, *some, spec)
            ends = np.cumsum(sizes).tolist()
            answers += [rows[end - size : end] for size, end in zip(sizes, ends, strict=True)]
            start = part.stop
        return answers


#: The keys of the saved split that clients see. Paths and commands are left out, because they reveal the machine.
_SPLIT_FACTS = ("how", "rows")


def describe_model(served: ServedModel) -> JsonObject:
    """Return the description of a model for clients, ready for JSON: columns, members, scores, limits and more."""
    saved, predictor, roles = served.about, served.predictor, served.folder.roles
    task = saved["task"]
    ood, profile = predictor.calibration.ood, predictor.calibration.profile
    flag_sentence = "Out-of-distribution flags are not calibrated."
    if ood is not None:
        expected = f"About {100 * ood.alpha:.3g}% of rows like the training data are flagged as out-of-distribution."
        flag_sentence = ood.warning or expected
    members = [
        {"name": name, "weight": member["weight"], "facts": member["facts"]}
        for name, member in saved["members"].items()
    ]
    return {
        "name": served.name,
        "version": served.version,
        "ddpn": saved["ddpn"],
        "fitted": task.get("date"),
        "target": roles.target,
        "exposure": roles.exposure,
        "rows": None if profile is None else profile.rows,
        "split": {key: task["split"][key] for key in _SPLIT_FACTS} if "split" in task else None,
        "members": members,
        "scores": task.get("scores"),
        "calibration": [predictor.calibration.describe(), flag_sentence],
        "limits": _list_limits(served),
        "warnings": [*task["leaks"], *task["warnings"]],
        "columns": [column.as_dict() for column in served.columns if column.is_required],
        "example": served.example,
    }


def _list_limits(served: ServedModel) -> list[str]:
    """Return sentences for clients about when the predictions can be relied on, and about the range of counts."""
    limits = [
        "Predictions hold for rows like the training rows. Predictions of flagged rows may be wrong by any amount."
    ]
    profile = served.predictor.calibration.profile
    ignored = () if profile is None else profile.ignored
    if ignored:
        limits.append(f"The out-of-distribution flag ignores {', '.join(ignored)}, which follow time.")
    counts = served.predictor.counts
    if counts.is_bounded:
        upper = "the upper bound of each row" if counts.upper_per_row else counts.upper
        limits.append(f"Counts lie between {counts.lower} and {'any number' if upper is None else upper}.")
    if served.folder.roles.exposure is not None:
        limits.append(f"Counts are predicted for the exposure of each row, {served.folder.roles.exposure!r}.")
    return limits
