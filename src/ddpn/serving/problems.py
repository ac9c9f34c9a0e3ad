"""What is wrong with a request: one sentence per problem, with the row and the column where there are some."""

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ddpn.runtime.errors import DDPNError, InputError
from ddpn.sample import RowError
from ddpn.serving.schemas import Described, row_of

#: Problems that one answer lists.
_MOST = 20
#: Errors by which a model refuses rows that are valid, such as levels that a GLM does not know.
REFUSALS = (DDPNError, ValueError, ArithmeticError)
#: The longest name of a column that answers repeat.
_LONGEST = 60
#: What answers say about paths and methods.
_STATUSES = {404: "There is nothing at this path.", 405: "This path has another method."}
#: Why a body cannot be read, by the error of the parser.
_UNREADABLE = {
    RecursionError: "must not be nested so deeply",
    UnicodeDecodeError: "must be UTF-8",
    ValueError: "must have numbers of at most 4,300 digits",
}


class Problem(NamedTuple):
    """A sentence; `row` is the position in `rows` from 0, `column` a name."""

    message: str
    row: int | None = None
    column: str | None = None


class RequestError(InputError):
    """A request that cannot be answered, with the HTTP status of the answer.

    Parameters
    ----------
    problems : sequence of Problem or str
        What is wrong; a string for a problem of the whole request.
    status : int
        The HTTP status.
    headers : mapping, optional
        Headers of the answer, such as Retry-After.
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
        details = [{name: value for name, value in p._asdict().items() if value is not None} for p in self.problems]
        # ASCII, as names of columns may have characters that UTF-8 has not.
        content = json.dumps({"message": str(self), "problems": details})
        return Response(content, self.status, self.headers, "application/json")


def busy(message: str, status: int = 503) -> RequestError:
    """The answer to a request that a client may send again in a second."""
    return RequestError(message, status, {"Retry-After": "1"})


def refusal(error: Exception, body: type[Described] | None = None) -> RequestError:
    """The answer to an error: of a request that is invalid, or of rows that a model refuses.

    Parameters
    ----------
    error : Exception
        What FastAPI or a model raised.
    body : type, optional
        What the body of the request must be.
    """
    if isinstance(error, RequestError):
        return error
    if isinstance(error, RequestValidationError) and body is not None:
        return _invalid(error, body)
    if isinstance(error, HTTPException):
        if error.status_code == 400:  # raised by FastAPI where a body cannot be parsed
            kind = next(kind for kind in (*_UNREADABLE, Exception) if isinstance(error.__cause__, kind))
            return RequestError(f"The body {_UNREADABLE.get(kind, 'must be JSON')}.")
        return RequestError(_STATUSES.get(error.status_code, error.detail), error.status_code, error.headers)
    if isinstance(error, RowError):
        rows = error.bad.nonzero()[0].tolist()
        return RequestError([Problem(f"rows[{row}]: {error.before}{error.after}", row) for row in rows])
    known = isinstance(error, DDPNError)
    return RequestError(str(error) if known else "The model cannot predict these rows. Check their values.")


def _invalid(error: RequestValidationError, body: type[Described]) -> RequestError:
    cause = error.__cause__
    if isinstance(cause, json.JSONDecodeError):
        return RequestError(f"The body must be JSON: {cause.msg} at line {cause.lineno}, column {cause.colno}.")
    first: dict[Any, Problem] = {}
    for each in error.errors():
        place = each["loc"][1:]  # after "body"
        value = place[:3] if place[:1] == ("rows",) else place[:1]
        first.setdefault(value, _problem(each["type"], value, each["input"], body))
    return RequestError(list(first.values()))


def _problem(kind: str, place: Sequence[Any], got: Any, body: type[Described]) -> Problem:
    """A sentence about an error of pydantic at a place within the body: a field, a row, or a cell of a row."""
    owner, subject, row = body, "The body", None
    if place[:1] == ("rows",) and len(place) > 1:
        owner, row, place = row_of(body), place[1], place[2:]
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


def shown(value: Any) -> str:
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
