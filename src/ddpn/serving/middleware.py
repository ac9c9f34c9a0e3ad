"""What every request passes before and after the app: token, limits of body and time, logs, metrics, headers."""

import asyncio
import hmac
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

from ddpn.runtime.errors import ConfigError
from ddpn.serving.limits import Limits
from ddpn.serving.metrics import Metrics
from ddpn.serving.problems import RequestError, busy

_LOG = logging.getLogger("ddpn.serving")
#: What needs no token: probes, and the page itself, which has nothing of a model before it is given the token.
OPEN = ("/livez", "/readyz", "/", "/page.css", "/page.js")
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
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


def read_token(variable: str | None, file: Path | None) -> str | None:
    """The bearer token of an environment variable or a file; None where neither is given.

    Parameters
    ----------
    variable : str, optional
        The value of the environment variable DDPN_TOKEN.
    file : Path, optional
        A file with the token alone.
    """
    if file is None and variable is None:
        return None
    try:
        token = (file.read_text(encoding="utf-8") if file is not None else variable or "").strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"The token file {file} cannot be read.") from None
    source = f"The token file {file}" if file is not None else "The environment variable DDPN_TOKEN"
    if not re.fullmatch(r"[!-~]{8,512}", token):
        raise ConfigError(f"{source} must have one token of 8 to 512 printable characters without blanks.")
    return token


class Middleware:
    """An ASGI app around another one, which may be replaced between two requests.

    Parameters
    ----------
    app : ASGI app
        The inner app. It leaves `rows` and `model` of a request in the scope's `ddpn` for logs.
    metrics : Metrics
        Counts requests.
    limits : Limits
        The most bytes of a body, and the time of a request.
    token : str, optional
        What clients must send as a bearer token.
    """

    def __init__(self, app: App, metrics: Metrics, limits: Limits, token: str | None = None) -> None:
        self.app, self._metrics, self._limits = app, metrics, limits
        self._expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, request = perf_counter(), 0, uuid4().hex[:16]
        known: dict[str, Any] = {}
        method = scope["method"] if scope["method"] in _METHODS else "other"  # clients may invent some
        # HEAD is answered as GET: the server leaves out the body.
        scope = {**scope, "ddpn": known, "method": "GET" if method == "HEAD" else scope["method"]}

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", []), *_HEADERS, (b"x-request-id", request.encode())]
                message = {**message, "headers": headers}
            await send(message)

        try:
            refused = await self._answered(scope, receive, sending)
        except Exception:
            _LOG.exception("error", extra={"fields": {"request": request, "path": _path(scope, status)}})
            refused = RequestError("The server failed. Its log has the details.", 500)
        finally:
            seconds = perf_counter() - start
        if refused is not None and not status:  # nothing was sent yet
            await refused.response()(scope, receive, sending)
        facts = {"path": _path(scope, status), "method": method}
        self._metrics.requests.labels(**facts, status=str(status)).inc()
        self._metrics.seconds.labels(facts["path"]).observe(seconds)
        if _LOG.isEnabledFor(logging.INFO):
            times = {"status": status, "ms": round(1000 * seconds, 2)}
            _LOG.info("request", extra={"fields": {"request": request, **facts, **known, **times}})

    async def _answered(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> RequestError | None:
        """Let the app answer; why it did not, where it did not."""
        try:
            self._check_token(scope)
            async with asyncio.timeout(self._limits.timeout):
                given = await self._with_body(scope, receive) if scope["method"] == "POST" else receive
                await self.app(scope, given, send)
        except TimeoutError:
            return busy("The answer took too long.")
        except RequestError as error:
            return error
        return None

    def _check_token(self, scope: MutableMapping[str, Any]) -> None:
        given = _header(scope, b"authorization")
        if self._expected is None or scope["path"] in OPEN or hmac.compare_digest(given, self._expected):
            return
        words = "Send the header Authorization: Bearer TOKEN with the token of this server."
        raise RequestError(words, 401, {"WWW-Authenticate": "Bearer"})

    async def _with_body(self, scope: MutableMapping[str, Any], receive: Receive) -> Receive:
        """Read the body of a request, within the limits; returns what the app receives it from."""
        kind = _header(scope, b"content-type", b"application/json")
        if kind.partition(b";")[0].strip().lower() != b"application/json":
            raise RequestError("The body must be JSON: send the header Content-Type: application/json.", 415)
        if not _header(scope, b"content-type"):
            scope["headers"] = [*scope["headers"], (b"content-type", b"application/json")]
        length = _header(scope, b"content-length")
        if length.isdigit():
            self._check_size(int(length[:20]))
        try:
            async with asyncio.timeout(0.9 * self._limits.timeout):  # before that of the whole request
                content = await self._read(receive)
        except TimeoutError:
            raise RequestError("The body did not arrive in time.", 408) from None
        messages = [{"type": "http.request", "body": content, "more_body": False}]

        async def received() -> Message:
            return messages.pop() if messages else await receive()

        return received

    async def _read(self, receive: Receive) -> bytes:
        content, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestError("The client went away.", 400)
            content += message.get("body", b"")
            self._check_size(len(content))
            more = message.get("more_body", False)
        return bytes(content)

    def _check_size(self, size: int) -> None:
        if size > (most := self._limits.max_bytes):
            raise RequestError(f"The body must have at most {most:,} bytes. Send fewer rows per request.", 413)


def _header(scope: MutableMapping[str, Any], name: bytes, default: bytes = b"") -> bytes:
    return next((value for own, value in scope["headers"] if own == name), default)


def _path(scope: MutableMapping[str, Any], status: int) -> str:
    """The path of the route that a request had; clients may invent others."""
    if status == 401:
        return "unauthorized"
    return getattr(scope.get("route"), "path", "unmatched")
