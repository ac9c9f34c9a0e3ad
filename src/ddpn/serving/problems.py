"""What is wrong with a request: one sentence per problem, with the row and the column where there are some."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from ddpn.runtime.errors import DDPNError, InputError
from ddpn.sample import RowError

#: Problems that one answer lists.
_MOST = 20
#: Errors by which a model refuses rows that are valid, such as levels that a GLM does not know.
REFUSALS = (DDPNError, ValueError, ArithmeticError)
#: What the place of an error starts with where a request may be for several models, followed by the name of one.
TAG = "model "
_OBJECT = 'The body must be an object such as {"rows": [{...}]}.'
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

    def body(self) -> bytes:
        """JSON: a message, and every problem with its row and column."""
        details = [{name: value for name, value in p._asdict().items() if value is not None} for p in self.problems]
        return json.dumps({"message": str(self), "problems": details}).encode()


def busy(message: str, status: int = 503) -> RequestError:
    """The answer to a request that a client may send again in a second."""
    return RequestError(message, status, {"Retry-After": "1"})


def refusal(error: Exception) -> RequestError:
    """The answer to an error: of a request that is invalid, or of rows that a model refuses.

    Parameters
    ----------
    error : Exception
        What FastAPI or a model raised.
    """
    if isinstance(error, RequestError):
        return error
    if isinstance(error, RequestValidationError):
        return _invalid(error)
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


def _invalid(error: RequestValidationError) -> RequestError:
    cause = error.__cause__
    if isinstance(cause, json.JSONDecodeError):
        return RequestError(f"The body must be JSON: {cause.msg} at line {cause.lineno}, column {cause.colno}.")
    return RequestError([_problem(each) for each in error.errors()])


def _problem(error: dict[str, Any]) -> Problem:
    """A sentence about an error of `ddpn.serving.schemas.Described`: a subject, and what is wrong with it."""
    place = error["loc"][1:]  # after "body"
    if str(*place[:1]).startswith(TAG):
        place = place[1:]
    row, column = (*place[1:3], None, None)[:2] if place[:1] == ("rows",) else (None, None)
    if error["type"] not in ("value", "fields"):
        return Problem(error["msg"] if error["type"] == "model" else _OBJECT)
    subject = place if error["type"] == "value" else place[:-1]
    return Problem(f"{_words(subject)} {error['msg']}", row, column)


def _words(place: Sequence[str | int]) -> str:
    """The place of a value in a request, such as rows[0]['age']."""
    first, *rest = place or ("The body",)
    return str(first) + "".join(f"[{part!r}]" for part in rest)
