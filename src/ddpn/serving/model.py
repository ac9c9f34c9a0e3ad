"""`ServedModel`: one version of a model folder, loaded, checked and ready to answer requests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddpn.features.kinds import WITH_NUMBERS
from ddpn.model_files import read_manifest, read_unchanged
from ddpn.predictor import Predictor
from ddpn.runtime.errors import DDPNError
from ddpn.serving.inputs import RowReader, Rows
from ddpn.serving.options import Wanted
from ddpn.serving.predicting import answers, predict_batch
from ddpn.serving.problems import RequestError
from ddpn.serving.served_columns import example_row, served_columns
from ddpn.workflow.dates import DAY
from ddpn.workflow.model_folder import describe, load

#: Errors by which a model refuses rows that passed the checks, such as levels that a GLM does not know.
REFUSALS = (DDPNError, ValueError, ArithmeticError)


class ServedModel:
    """A loaded model that predicts rows of JSON.

    Parameters
    ----------
    name : str
        What it is called in paths.
    path : Path
        The model folder.
    **columns
        Columns (exposure, upper) that a model saved in Python does not know.

    Attributes
    ----------
    version : str
        The first digits of the checksum of its files.
    """

    def __init__(self, name: str, path: Path, **columns: str | None) -> None:
        self.name, self.path = name, path
        folder, self.about, checksum = read_unchanged(
            path, lambda: (load(path, mixed_only=True, **columns), describe(path), read_manifest(path)["checksum"])
        )
        self.folder, self.predictor = folder, folder.model.predictor_
        self.version = str(checksum)[:12]
        self.columns = served_columns(folder)
        names = [name for column in folder.roles.used for name in column.inputs]
        kinds = ["category" if kind == WITH_NUMBERS else kind for kind in _kinds(self.predictor, folder.model)]
        self.reader = RowReader(self.columns, dict(zip(names, kinds, strict=True)))
        dates = (column for column in folder.roles.used if column.kind == "date")
        self.days = frozenset(f"{column.name} {DAY}" for column in dates if DAY in column.parts)
        self.example = example_row(self.columns)
        self.warm_up()

    def warm_up(self) -> None:
        """Predict a typical row, twice: the first prediction of a process imports and caches much."""
        for _ in range(2):
            self.predict([(self.reader.read([self.example]), Wanted())])

    def predict(self, requests: Sequence[tuple[Rows, Wanted]]) -> list[list[dict[str, Any]] | Exception]:
        """Predict the rows of several requests together: an answer, or the error, of each.

        Parameters
        ----------
        requests : sequence of tuple
            The rows and what is wanted, of each request.
        """
        try:
            return self._predicted(requests)
        except REFUSALS as error:
            if len(requests) == 1:
                return [refusal(error)]
        # One of them is to blame: the others must not fail with it.
        return [answer for request in requests for answer in self.predict([request])]

    def _predicted(self, requests: Sequence[tuple[Rows, Wanted]]) -> list[list[dict[str, Any]] | Exception]:
        names = frozenset(name for _, wanted in requests for name in wanted.outputs)
        batch = predict_batch(self.predictor, self.reader.inputs([rows for rows, _ in requests]), names)
        found: list[list[dict[str, Any]] | Exception] = []
        for (start, stop), wanted in _runs(requests):
            same = answers(batch, slice(start, stop), wanted, self.days)
            done = 0
            while done < stop - start:
                size = requests[len(found)][0].size
                found.append(same[done : done + size])
                done += size
        return found


def refusal(error: Exception) -> RequestError:
    """The answer to rows that a model refuses."""
    if isinstance(error, RequestError):
        return error
    words = str(error) if isinstance(error, DDPNError) else "The model cannot predict these rows. Check their values."
    return RequestError(words)


def _kinds(predictor: Predictor, model: Any) -> list[str]:
    if predictor.profile is not None:
        return list(predictor.profile.reader.kinds_)
    return list(model.feature_kinds_)


def _runs(requests: Sequence[tuple[Rows, Wanted]]) -> list[tuple[tuple[int, int], Wanted]]:
    """Rows of neighbouring requests that want the same, as ranges."""
    found: list[tuple[tuple[int, int], Wanted]] = []
    start = 0
    for rows, wanted in requests:
        if found and found[-1][1] == wanted:
            found[-1] = ((found[-1][0][0], start + rows.size), wanted)
        else:
            found.append(((start, start + rows.size), wanted))
        start += rows.size
    return found
