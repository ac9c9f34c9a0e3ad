"""Requests and answers as pydantic models, and what is wrong with a request, in sentences.

FastAPI checks bodies and writes the OpenAPI document from these models.
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

#: Outputs per row; the first ones are the default.
DEFAULT_OUTPUTS = (*DEFAULT_COLUMNS, "ood")
OUTPUTS = (*DEFAULT_OUTPUTS, "ood_reasons", *NESTED_OUTPUTS)
#: The most quantiles, and the largest count of `pmf`, per request.
MOST_QUANTILES, MOST_COUNTS = 99, 1000


class Described(BaseModel):
    """A model whose fields must each be what their description says, as sentences about others do."""

    model_config = ConfigDict(extra="forbid", strict=True)
    #: What the object itself must be, and what its fields are called.
    is_called: ClassVar[str] = 'an object such as {"rows": [{...}]}'
    field_word: ClassVar[str] = "field"

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """The description of each field, by its name in JSON."""
        return {field.alias or name: field.description or "" for name, field in cls.model_fields.items()}


class Row(Described):
    """A row of a request; `ServedModel.Row` has a field per column, with the column's name as its alias."""

    is_called: ClassVar[str] = "an object with a value per column"
    field_word: ClassVar[str] = "column"


def integer(least: int, most: int) -> Any:
    """The type of integers in a range, which JSON may have as 3.0."""

    def read(value: object) -> object:
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return Annotated[int, Field(ge=least, le=most), BeforeValidator(read)]


_Level = Annotated[float, Field(gt=0.0, lt=1.0)]


class PredictOptions(Described):
    """What a request to predict has besides its rows."""

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
        title="The fewest counts, or those between two quantiles; default: as the model",
        description=f"one of {', '.join(INTERVAL_KINDS)}",
    )
    quantiles: list[_Level] = Field(
        [], max_length=MOST_QUANTILES, description=f"a list of at most {MOST_QUANTILES} numbers between 0 and 1"
    )
    pmf: integer(0, MOST_COUNTS) | None = Field(  # type: ignore[valid-type]
        None, title="Adds the probabilities of 0 up to this", description=f"an integer from 0 to {MOST_COUNTS}"
    )

    @property
    def spec(self) -> PredictionSpec:
        """What to predict."""
        outputs = DEFAULT_OUTPUTS if self.outputs is None else tuple(dict.fromkeys(self.outputs))
        return PredictionSpec(
            columns=tuple("ood_reason" if name == "ood_reasons" else name for name in outputs),
            coverage=self.coverage,
            quantiles=tuple(self.quantiles),
            pmf=self.pmf,
            interval_kind=self.interval_kind,
        )


class PredictRequest(PredictOptions):
    """A request to predict; the model of a request to a served model says which columns its rows have."""

    rows: Sequence[Row]


def request_model(name: str, row: type[Row], most: int) -> type[PredictRequest]:
    """The model of requests to the served model of this name, with at most so many rows."""
    words = f"a list of 1 to {most:,} rows, each an object with a value per column"
    rows: Any = (list[row], Field(min_length=1, max_length=most, description=words))  # type: ignore[valid-type]
    return create_model(f"Predict_{name}", __base__=PredictRequest, rows=rows)


# Answers ---------------------------------------------------------------------------------------------------------


class PredictedRow(TypedDict, total=False):
    """The outputs of a row; quantiles are q0.1 and so on."""

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
    """Predictions of rows, in the order of the rows."""

    model: str
    version: str
    coverage: float
    predictions: list[PredictedRow]


@dataclass
class Problem:
    """A sentence; `row` is the position in `rows` from 0, `column` a name."""

    message: str
    row: int | None = None
    column: str | None = None


class Problems(TypedDict):
    """Why a request is refused."""

    message: str
    problems: list[Problem]


#: Problems that one answer lists.
_MOST = 20
#: Errors by which a model refuses rows that are valid, such as levels that a GLM does not know.
REFUSALS = (DDPNError, ValueError, ArithmeticError)
#: The longest name of a column that answers repeat.
_LONGEST = 60
#: Why requests are refused, by the status of the answer.
STATUSES = {
    401: "The bearer token is missing or wrong.",
    404: "There is nothing at this path.",
    405: "This path has another method.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body does not say that it is JSON.",
    422: "The request or a row is invalid; the answer names rows and columns.",
    429: "Too many requests are waiting.",
    503: "The answer took too long, or the server is stopping.",
}
#: Why a body cannot be read, by the error of the parser.
_UNREADABLE = {
    RecursionError: "must not be nested so deeply",
    UnicodeDecodeError: "must be UTF-8",
    ValueError: "must have numbers of at most 4,300 digits",
}


class RequestError(InputError):
    """A request that cannot be answered, with the HTTP status and headers of the answer.

    `problems` are those of rows and columns, or one sentence about the whole request.
    """

    def __init__(
        self, problems: Sequence[Problem] | str, status: int = 422, headers: Mapping[str, str] | None = None
    ) -> None:
        found = [Problem(problems)] if isinstance(problems, str) else list(problems)
        self.problems, self.status, self.headers = found[:_MOST], status, headers or {}
        more = len(found) - _MOST
        super().__init__(found[0].message + (f" {more:,} more problems are not listed." if more > 0 else ""))

    def response(self) -> Response:
        """JSON: a message, and every problem with its row and column."""
        details = [{name: value for name, value in vars(p).items() if value is not None} for p in self.problems]
        # ASCII, as names of columns may have characters that UTF-8 has not.
        content = json.dumps({"message": str(self), "problems": details})
        return Response(content, self.status, self.headers, "application/json")


def busy(message: str, status: int = 503) -> RequestError:
    """The answer to a request that a client may send again in a second."""
    return RequestError(message, status, {"Retry-After": "1"})


def refusal(error: Exception, body: type[Described] | None = None) -> RequestError:
    """The answer to an error of FastAPI, of a request that is not what `body` says, or of rows that a model refuses."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, RequestValidationError) and body is not None:
        return _invalid(error, body)
    if isinstance(error, HTTPException):
        if error.status_code == 400:  # raised by FastAPI where a body cannot be parsed
            kind = next(kind for kind in (*_UNREADABLE, Exception) if isinstance(error.__cause__, kind))
            return RequestError(f"The body {_UNREADABLE.get(kind, 'must be JSON')}.")
        return RequestError(STATUSES.get(error.status_code, error.detail), error.status_code, error.headers)
    if isinstance(error, RowError):
        rows = error.bad.nonzero()[0].tolist()
        return RequestError([Problem(f"rows[{row}]: {error.before}{error.after}", row) for row in rows])
    known = isinstance(error, DDPNError)
    return RequestError(str(error) if known else "The model cannot predict these rows. Check their values.")


def _invalid(error: RequestValidationError, body: type[Described]) -> RequestError:
    cause = error.__cause__
    if isinstance(cause, json.JSONDecodeError):
        return RequestError(f"The body must be JSON: {cause.msg} at line {cause.lineno}, column {cause.colno}.")
    first: dict[tuple[int | str, ...], Problem] = {}
    for each in error.errors():
        place = each["loc"][1:]  # after "body"
        value = place[:3] if place[:1] == ("rows",) else place[:1]
        first.setdefault(value, _problem(each["type"], value, each["input"], body))
    return RequestError(list(first.values()))


def _problem(kind: str, place: Sequence[int | str], got: object, body: type[Described]) -> Problem:
    """A sentence about an error of pydantic at a place within the body: a field, a row, or a cell of a row."""
    owner, subject = body, "The body"
    row: int | None = None
    if place[:1] == ("rows",) and len(place) > 1:
        owner, row, place = get_args(body.model_fields["rows"].annotation)[0], int(place[1]), place[2:]
        subject = f"rows[{row}]"
    if not place:
        return Problem(f"{subject} must be {owner.is_called}, got {shown(got)}.", row)
    name, known = str(place[0]), owner.descriptions()
    if kind == "missing":
        remedy = " Send null if the value is missing." if "null" in known[name] else ""
        words = f"{subject} has no {owner.field_word} {name!r}.{remedy}"
    elif kind == "extra_forbidden":
        name = name[:_LONGEST]
        near = get_close_matches(name, known, 1)
        hint = f"Did you mean {near[0]!r}?" if near else "Leave it out."
        words = f"{subject} has an unknown {owner.field_word} {name!r}. {hint}"
    else:
        words = f"{name if row is None else f'{subject}[{name!r}]'} must be {known[name]}, got {shown(got)}."
    return Problem(words, row, None if row is None else name)


def shown(value: object) -> str:
    """A value for a message: its type, and the value itself where that is short."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    if isinstance(value, dict | bytes):
        return "an object" if isinstance(value, dict) else "bytes"
    words = str(value).lower() if isinstance(value, bool) else repr(value)
    words = words if len(words) <= 40 else words[:37] + "..."
    return f"text {words}" if isinstance(value, str) else words
