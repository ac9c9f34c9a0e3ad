"""From the bytes of a request to a checked document: strict JSON, and one kind of error for whatever a client sends."""

import json
from typing import Any, NoReturn

from ddpn.serving.options import Limits
from ddpn.serving.problems import Problem, RequestError

#: Fields of the requests.
PREDICT_FIELDS = ("rows", "outputs", "coverage", "quantiles", "pmf", "model")
EXPLAIN_FIELDS = ("rows", "of", "curves", "model")


def _refused(name: str) -> NoReturn:
    raise RequestError(f"The body must be JSON, which has no {name}. Send null for a missing value.")


_DECODER = json.JSONDecoder(parse_constant=_refused)


def parse(body: bytes, fields: tuple[str, ...], limits: Limits, most_rows: int | None = None) -> dict[str, Any]:
    """The document of a request, with `rows` as a list; raises a `RequestError`.

    Parameters
    ----------
    body : bytes
        What the client sent.
    fields : tuple of str
        The fields that a request may have.
    limits : Limits
        Those of the server.
    most_rows : int, optional
        The most rows. Default: that of the limits.
    """
    document = _decoded(body)
    if not isinstance(document, dict):
        raise RequestError('The body must be an object such as {"rows": [{...}]}.')
    for name in document:
        if name not in fields:
            raise RequestError(f"Unknown field {name[:40]!r}. A request has the fields {', '.join(fields)}.")
    rows = document.get("rows")
    if not isinstance(rows, list) or not rows:
        raise RequestError("rows must be a list of at least one row, each an object with a value per column.")
    most = limits.max_rows if most_rows is None else most_rows
    if len(rows) > most:
        raise RequestError(
            [Problem(f"rows must have at most {most:,} entries, got {len(rows):,}. Send several requests.")]
        )
    return document


def _decoded(body: bytes) -> Any:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"The body must be UTF-8, which byte {error.start:,} is not.") from None
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise RequestError(
            f"The body must be JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from None
    except RecursionError:
        raise RequestError("The body must be JSON of a few levels, got one that is nested too deeply.") from None
    except RequestError:
        raise
    except ValueError:  # an integer of more digits than Python converts
        raise RequestError("The body must have numbers of at most 4,300 digits.") from None
