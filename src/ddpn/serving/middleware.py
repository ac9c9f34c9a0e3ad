"""ASGI middleware around the app: limits, bearer token, metrics, logs and headers."""

import asyncio
import hmac
import json
import logging
import math
import re
import sys
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from uuid import uuid4

import prometheus_client as client
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ddpn.runtime.errors import ConfigError
from ddpn.serving.schemas import RequestError, retry_later
from ddpn.storage.contents import JsonObject


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits on requests to a server.

    Parameters
    ----------
    max_rows : int
        The largest number of rows in a request.
    max_bytes : int
        The largest size of a request's body in bytes.
    max_queue : int
        The largest number of waiting requests. Further ones are refused with status 429.
    timeout : float
        The time in seconds within which a request must be answered; after that, the answer is an error of status 503.
    """

    max_rows: int = 1000
    max_bytes: int = 2_000_000
    max_queue: int = 256
    timeout: float = 30.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            lowest = 1e-3 if name == "timeout" else 1
            if not math.isfinite(value) or value < lowest:
                raise ConfigError(argument=name, must=f"be at least {lowest:g}", got=f"{value:g}")


_SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The Prometheus metrics of one server, in their own registry."""

    def __init__(self) -> None:
        self._registry = registry = client.CollectorRegistry()
        requests, seconds = "Requests that were answered.", "Time from a request to its answer."
        self.requests = client.Counter("ddpn_requests", requests, ["path", "method", "status"], registry=registry)
        self.seconds = client.Histogram(
            "ddpn_request_seconds", seconds, ["path"], buckets=_SECONDS_BUCKETS, registry=registry
        )
        self.rows = client.Counter("ddpn_rows", "Rows that were predicted.", ["model"], registry=registry)
        self.ood = client.Counter("ddpn_ood_rows", "Rows flagged as out-of-distribution.", ["model"], registry=registry)
        self.batch = client.Histogram(
            "ddpn_batch_rows", "Rows predicted together.", buckets=_ROWS_BUCKETS, registry=registry
        )
        batch = "Time to predict a batch."
        self.batch_seconds = client.Histogram("ddpn_batch_seconds", batch, buckets=_SECONDS_BUCKETS, registry=registry)
        self.waiting = client.Gauge("ddpn_queue_requests", "Requests that wait to be predicted.", registry=registry)
        self.reloads = client.Counter("ddpn_reloads", "New versions of models.", ["model", "result"], registry=registry)
        self.model = client.Info("ddpn_model", "The version of each model.", ["model"], registry=registry)

    def render(self) -> tuple[bytes, str]:
        """Return all metrics in the text format of Prometheus, and its content type."""
        return client.generate_latest(self._registry), client.CONTENT_TYPE_LATEST


class JsonLines(logging.Formatter):
    """A log formatter that writes each record as one line of JSON, with its time, level, event and fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a log record as one line of JSON."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: JsonObject = {"time": when, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[0] is not None:
            # The message is omitted, because it may contain values of rows. The frames show where the error occurred.
            line["error"] = record.exc_info[0].__name__
            frames = traceback.extract_tb(record.exc_info[2])[-8:]
            line["at"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line)


def configure_logs(level: str) -> None:
    """Write the logs of the server and of uvicorn to standard error, for this level and more severe ones."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.captureWarnings(True)
    for name in ("ddpn.serving", "uvicorn", "py.warnings"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper() if name != "uvicorn" else "WARNING")


_LOG = logging.getLogger("ddpn.serving")
#: Paths that need no token: probes, and the web page, which shows no model before the user enters the token.
OPEN_PATHS = ("/livez", "/readyz", "/", "/page.css", "/page.js")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def read_token(variable: str | None, file: Path | None) -> str | None:
    """Read the bearer token from a file or, without a file, from the value of an environment variable.

    Return None if both are None. A token that is too short or has spaces raises a `ConfigError`.
    """
    if file is None and variable is None:
        return None
    try:
        token = (file.read_text(encoding="utf-8") if file is not None else variable or "").strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"The token file {file} cannot be read.") from None
    source = f"The token file {file}" if file is not None else "The environment variable DDPN_TOKEN"
    if not re.fullmatch(r"[!-~]{8,512}", token):
        raise ConfigError(f"{source} must contain one token of 8 to 512 printable characters without spaces.")
    return token


class Middleware:
    """ASGI middleware that checks the token and the limits of requests to `app`, and records metrics and logs.

    If `token` is None, no token is needed. `app` stores the model name and the number of rows of a request in
    `scope["ddpn"]`, for the log.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, limits: Limits, token: str | None = None) -> None:
        self.app, self._metrics, self._limits = app, metrics, limits
        self._expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request: check it, pass it to the app, send the response, and record metrics and a log line."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, request_id = perf_counter(), 0, uuid4().hex[:16]
        logged: JsonObject = {}
        method = scope["method"] if scope["method"] in _METHODS else "other"  # clients may send invented methods
        # HEAD is answered like GET, and the server omits the body.
        scope = {**scope, "ddpn": logged, "method": "GET" if method == "HEAD" else scope["method"]}

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", []), *_HEADERS, (b"x-request-id", request_id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        try:
            error = await self._answer(scope, receive, send_with_headers)
        except Exception:
            _LOG.exception("error", extra={"fields": {"request": request_id, "path": _find_route(scope, status)}})
            error = RequestError("The server failed. Its log has the details.", 500)
        finally:
            seconds = perf_counter() - start
        if error is not None and not status:  # nothing was sent yet
            await error.response()(scope, receive, send_with_headers)
        labels = {"path": _find_route(scope, status), "method": method}
        self._metrics.requests.labels(**labels, status=str(status)).inc()
        self._metrics.seconds.labels(labels["path"]).observe(seconds)
        if _LOG.isEnabledFor(logging.INFO):
            outcome = {"status": status, "ms": round(1000 * seconds, 2)}
            _LOG.info("request", extra={"fields": {"request": request_id, **labels, **logged, **outcome}})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> RequestError | None:
        """Pass a request to the app if its token and size are valid.

        Return None if the app has sent a response. Otherwise return the error to send to the client.
        """
        is_open = self._expected is None or scope["path"] in OPEN_PATHS
        if not is_open and not hmac.compare_digest(_read_header(scope, b"authorization"), self._expected or b""):
            message = "Send the header Authorization: Bearer TOKEN with the token of this server."
            return RequestError(message, 401, {"WWW-Authenticate": "Bearer"})
        try:
            async with asyncio.timeout(self._limits.timeout):
                receive_body = await self._read_body(scope, receive) if scope["method"] == "POST" else receive
                await self.app(scope, receive_body, send)
        except TimeoutError:
            return retry_later("The answer took too long.")
        except RequestError as error:
            return error
        return None

    async def _read_body(self, scope: Scope, receive: Receive) -> Receive:
        """Read the whole body of a request; return an ASGI `receive` callable from which the app reads the body again.

        Raise a `RequestError` if the body is too large, arrives too slowly or is declared as something other than JSON,
        or if the client disconnects.
        """
        content_type = _read_header(scope, b"content-type")
        if content_type.partition(b";")[0].strip().lower() not in (b"", b"application/json"):
            raise RequestError("The body must be JSON: send the header Content-Type: application/json.", 415)
        if not content_type:
            scope["headers"] = [*scope["headers"], (b"content-type", b"application/json")]
        content, has_more, max_bytes = bytearray(), True, self._limits.max_bytes
        length = _read_header(scope, b"content-length")
        announced = int(length[:20]) if length.isdigit() else 0
        try:
            async with asyncio.timeout(0.9 * self._limits.timeout):  # ends before the time limit of the whole request
                while has_more and max(announced, len(content)) <= max_bytes:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RequestError("The client disconnected.", 400)
                    content += message.get("body", b"")
                    has_more = message.get("more_body", False)
        except TimeoutError:
            raise RequestError("The body did not arrive in time.", 408) from None
        if max(announced, len(content)) > max_bytes:
            raise RequestError(f"The body must have at most {max_bytes:,} bytes. Send fewer rows per request.", 413)
        messages = [{"type": "http.request", "body": bytes(content), "more_body": False}]

        async def replay_body() -> Message:
            return messages.pop() if messages else await receive()

        return replay_body


def _read_header(scope: Scope, name: bytes) -> bytes:
    return next((value for header, value in scope["headers"] if header == name), b"")


def _find_route(scope: Scope, status: int) -> str:
    """Return the label under which metrics count a response: the path of its route, such as "/predict".

    All responses without a route share the label "unmatched", and those with status 401 the label "unauthorized".
    Otherwise, clients could fill the memory with labels by requesting invented paths.
    """
    if status == 401:
        return "unauthorized"
    return getattr(scope.get("route"), "path", "unmatched")
