"""The pydantic models of requests and responses, and the error messages for invalid requests.

FastAPI uses these models to validate requests and to generate the OpenAPI document.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal, get_args

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from starlette.exceptions import HTTPException
from starlette.responses import Response
from typing_extensions import TypedDict

from ddpn.calibration import INTERVAL_KINDS
from ddpn.prediction.spec import DEFAULT_COLUMNS, NESTED_OUTPUTS, PredictionSpec
from ddpn.rows.checks import RowError
from ddpn.runtime.errors import DDPNError, InputError
from ddpn.storage.contents import JsonObject

#: The default outputs of each row, and all outputs.
DEFAULT_OUTPUTS = (*DEFAULT_COLUMNS, "ood")
OUTPUTS = (*DEFAULT_OUTPUTS, "ood_reasons", *NESTED_OUTPUTS)
#: The most quantiles of a request, and the largest count of `pmf`.
MAX_QUANTILES, MAX_PMF_COUNT = 99, 1000


class DescribedModel(BaseModel):
    """A pydantic model whose field descriptions complete the error message "FIELD must be ...".

    In error messages, `expectation` describes a valid object, and `field_noun` is the word for a field.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    #: A description of the object, and the noun for its fields, in messages.
    expectation: ClassVar[str] = 'an object such as {"rows": [{...}]}'
    field_noun: ClassVar[str] = "field"

    @classmethod
    def describe_fields(cls) -> dict[str, str]:
        """Return the descriptions of all fields, by their names in JSON."""
        return {field.alias or name: field.description or "" for name, field in cls.model_fields.items()}


class Row(DescribedModel):
    """The base class of rows of requests. Each served model has a subclass with one field per column."""

    expectation: ClassVar[str] = "an object with a value per column"
    field_noun: ClassVar[str] = "column"


def make_integer_type(low: int, high: int) -> Any:
    """Return a pydantic type for integers from `low` to `high`, which also accepts whole floats such as 3.0."""

    def read(value: object) -> object:
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return Annotated[int, Field(ge=low, le=high), BeforeValidator(read)]


_Level = Annotated[float, Field(gt=0.0, lt=1.0)]


class PredictOptions(DescribedModel):
    """The options of a prediction request."""

    outputs: list[Literal[OUTPUTS]] | None = Field(  # type: ignore[valid-type]
        None,
        min_length=1,
        max_length=100,
        title="What to predict; default: all but the last three",
        description=f"a list of some of {', '.join(OUTPUTS)}",
    )
    coverage: _Level = Field(0.9, title="Of the interval from lower to upper", description="a number between 0 and 1")
    interval_kind: Literal[INTERVAL_KINDS] | None = Field(  # type: ignore[valid-type]
        None,
        title="The fewest counts, or the counts between two quantiles; default: that of the model",
        description=f"one of {', '.join(INTERVAL_KINDS)}",
    )
    quantiles: list[_Level] = Field(
        [], max_length=MAX_QUANTILES, description=f"a list of at most {MAX_QUANTILES} numbers between 0 and 1"
    )
    pmf: make_integer_type(0, MAX_PMF_COUNT) | None = Field(  # type: ignore[valid-type]
        None, title="Adds the probabilities of 0 up to this", description=f"an integer from 0 to {MAX_PMF_COUNT}"
    )

    @property
    def spec(self) -> PredictionSpec:
        """The options as a `PredictionSpec`."""
        outputs = DEFAULT_OUTPUTS if self.outputs is None else tuple(dict.fromkeys(self.outputs))
        return PredictionSpec(
            columns=tuple("ood_reason" if name == "ood_reasons" else name for name in outputs),
            coverage=self.coverage,
            quantiles=tuple(self.quantiles),
            pmf=self.pmf,
            interval_kind=self.interval_kind,
        )


class PredictRequest(PredictOptions):
    """A prediction request: rows and options. Each served model has a subclass with the columns of its rows."""

    rows: Sequence[Row]


def make_request_model(name: str, row: type[Row], max_rows: int) -> type[PredictRequest]:
    """Create the pydantic model of prediction requests to the served model `name`.

    `row` is the model of a row, and a request has at most `max_rows` rows.
    """
    description = f"a list of 1 to {max_rows:,} rows, each an object with a value per column"
    limits = Field(min_length=1, max_length=max_rows, description=description)
    rows: Any = (list[row], limits)  # type: ignore[valid-type]
    return create_model(f"Predict_{name}", __base__=PredictRequest, rows=rows)


# Answers ---------------------------------------------------------------------------------------------------------


class PredictedRow(TypedDict, total=False):
    """The predictions for a row. Requested quantiles are additional keys, such as "q0.1"."""

    mean: float
    median: int
    mode: int
    lower: int
    upper: int
    interval_probability: float
    aleatoric: float
    epistemic: float
    stddev: float
    ood_pvalue: float
    ood: bool
    ood_reasons: list[str]
    pmf: list[float]
    distribution: JsonObject
    members: list[JsonObject]


class Predictions(TypedDict):
    """The response to a prediction request; `predictions` has one element per row of the request, in the same order."""

    model: str
    version: str
    coverage: float
    predictions: list[PredictedRow]


@dataclass
class Problem:
    """A problem of a request, which `message` describes in a sentence.

    If the problem concerns one row, `row` is the position of the row in the request, from 0. If it concerns one cell,
    `column` is the name of the column.
    """

    message: str
    row: int | None = None
    column: str | None = None


class Problems(TypedDict):
    """The JSON response to an invalid request: a message and a list of problems."""

    message: str
    problems: list[Problem]


#: The most problems that an answer lists.
_MAX_LISTED_PROBLEMS = 20
#: Errors that a model can raise for rows with valid types, such as unseen levels in a GLM.
PREDICTION_ERRORS = (DDPNError, ValueError, ArithmeticError)
#: The most characters of a column's name that answers repeat.
_MAX_NAME_LENGTH = 60
#: The reasons why requests are refused, by status.
STATUSES = {
    401: "The bearer token is missing or wrong.",
    404: "This path does not exist.",
    405: "This path does not allow this method.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The content type of the body is not JSON.",
    422: "The request or a row is invalid; the answer names rows and columns.",
    429: "Too many requests are waiting.",
    503: "The answer took too long, or the server is stopping.",
}
#: What a body must be that cannot be read, by the class of the parser's error; completes "The body ...".
_UNREADABLE = {
    RecursionError: "must not be nested so deeply",
    UnicodeDecodeError: "must be UTF-8",
    ValueError: "must have numbers of at most 4,300 digits",
}


class RequestError(InputError):
    """An error that is sent to the client, with an HTTP status and headers.

    `problems` is a list of problems of rows and cells, or one sentence about the whole request.
    """

    def __init__(
        self, problems: Sequence[Problem] | str, status: int = 422, headers: Mapping[str, str] | None = None
    ) -> None:
        all_problems = [Problem(problems)] if isinstance(problems, str) else list(problems)
        self.problems, self.status, self.headers = all_problems[:_MAX_LISTED_PROBLEMS], status, headers or {}
        n_unlisted = len(all_problems) - _MAX_LISTED_PROBLEMS
        super().__init__(
            all_problems[0].message + (f" Problems that are not listed: {n_unlisted:,}." if n_unlisted > 0 else "")
        )

    def response(self) -> Response:
        """Return the HTTP response: JSON with a message and the list of problems."""
        details = [{name: value for name, value in vars(p).items() if value is not None} for p in self.problems]
        # As ASCII, because names of columns can contain characters that UTF-8 cannot encode.
        content = json.dumps({"message": str(self), "problems": details})
        return Response(content, self.status, self.headers, "application/json")


def retry_later(message: str, status: int = 503) -> RequestError:
    """Return an error with this message and HTTP status that asks the client to try again after a second."""
    return RequestError(message, status, {"Retry-After": "1"})


def to_request_error(error: Exception, body: type[DescribedModel] | None = None) -> RequestError:
    """Convert an exception to an error for the client.

    The exception comes from FastAPI, from a prediction, or from the validation of a request. `body` is the pydantic
    model that validated the request; None if its route takes no body. The descriptions of its fields become part of the
    message.
    """
    if isinstance(error, RequestError):
        return error
    if isinstance(error, RequestValidationError) and body is not None:
        return _list_problems(error, body)
    if isinstance(error, HTTPException):
        if error.status_code == 400:  # raised by FastAPI if it cannot parse a body
            kind = next(kind for kind in (*_UNREADABLE, Exception) if isinstance(error.__cause__, kind))
            return RequestError(f"The body {_UNREADABLE.get(kind, 'must be JSON')}.")
        return RequestError(STATUSES.get(error.status_code, error.detail), error.status_code, error.headers)
    if isinstance(error, RowError):
        rows = error.bad.nonzero()[0].tolist()
        return RequestError([Problem(f"rows[{row}]: {error.before}{error.after}", row) for row in rows])
    is_clear = isinstance(error, DDPNError)
    return RequestError(str(error) if is_clear else "The model cannot predict these rows. Check their values.")


def _list_problems(error: RequestValidationError, body: type[DescribedModel]) -> RequestError:
    """Convert pydantic's errors about a request to one error for the client, with one problem per field or cell.

    `body` is the pydantic model that validated the request.
    """
    cause = error.__cause__
    if isinstance(cause, json.JSONDecodeError):
        return RequestError(f"The body must be JSON: {cause.msg} at line {cause.lineno}, column {cause.colno}.")
    first: dict[tuple[int | str, ...], Problem] = {}
    for details in error.errors():
        location = details["loc"][1:]  # after "body"
        position = location[:3] if location[:1] == ("rows",) else location[:1]
        first.setdefault(position, _describe_problem(details["type"], position, details["input"], body))
    return RequestError(list(first.values()))


def _describe_problem(kind: str, location: Sequence[int | str], value: object, body: type[DescribedModel]) -> Problem:
    """Describe one of pydantic's validation errors in a sentence.

    `kind` is pydantic's name of the error, such as "missing". `location` is the path to the invalid `value`, such as
    ("rows", 3, "age").
    """
    owner, subject = body, "The body"
    row: int | None = None
    if location[:1] == ("rows",) and len(location) > 1:
        owner, row, location = get_args(body.model_fields["rows"].annotation)[0], int(location[1]), location[2:]
        subject = f"rows[{row}]"
    if not location:
        return Problem(f"{subject} must be {owner.expectation}, got {format_value(value)}.", row)
    name, descriptions = str(location[0]), owner.describe_fields()
    if kind == "missing":
        remedy = " Send null if the value is missing." if "null" in descriptions[name] else ""
        words = f"{subject} has no {owner.field_noun} {name!r}.{remedy}"
    elif kind == "extra_forbidden":
        name = name[:_MAX_NAME_LENGTH]
        near = get_close_matches(name, descriptions, 1)
        hint = f"Did you mean {near[0]!r}?" if near else "Leave it out."
        words = f"{subject} has an unknown {owner.field_noun} {name!r}. {hint}"
    else:
        cell = name if row is None else f"{subject}[{name!r}]"
        words = f"{cell} must be {descriptions[name]}, got {format_value(value)}."
    return Problem(words, row, None if row is None else name)


def format_value(value: object) -> str:
    """Format a JSON value for an error message, such as "text 'blue'" or "null"; long values are shortened."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    if isinstance(value, dict | bytes):
        return "an object" if isinstance(value, dict) else "bytes"
    words = str(value).lower() if isinstance(value, bool) else repr(value)
    words = words if len(words) <= 40 else words[:37] + "..."
    return f"text {words}" if isinstance(value, str) else words
