"""The edge of the server: the token, logs, metrics and headers of every request, in one layer around the app."""

import hmac
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

from ddpn.runtime.errors import ConfigError
from ddpn.serving.metrics import Metrics

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


class Edge:
    """An ASGI app around another one.

    Parameters
    ----------
    app : ASGI app
        The inner app. It leaves `path`, `rows` and `model` of a request in the scope's `ddpn` for logs.
    metrics : Metrics
        Counts requests.
    token : str, optional
        What clients must send as a bearer token.
    """

    def __init__(self, app: App, metrics: Metrics, token: str | None = None) -> None:
        self._app, self._metrics = app, metrics
        self._expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, known = perf_counter(), 0, {"path": "unmatched"}
        scope["ddpn"] = known
        request = uuid4().hex[:16]

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", []), *_HEADERS, (b"x-request-id", request.encode())]
                message = {**message, "headers": headers}
            await send(message)

        try:
            if self._is_allowed(scope):
                await self._app(scope, receive, sending)
            else:
                known["path"] = "unauthorized"
                await _unauthorized(sending)
        except Exception:
            _LOG.exception("error", extra={"fields": {"request": request, "path": known["path"]}})
            if not status:  # nothing was sent yet
                await _plain(sending, 500, b'{"message": "The server failed. Its log has the details."}')
        finally:
            seconds = perf_counter() - start
            self._metrics.request(known["path"], _method(scope), status, seconds)
            if _LOG.isEnabledFor(logging.INFO):
                facts = {"request": request, "method": _method(scope), **known, "status": status}
                _LOG.info("request", extra={"fields": {**facts, "ms": round(1000 * seconds, 2)}})

    def _is_allowed(self, scope: MutableMapping[str, Any]) -> bool:
        if self._expected is None or scope["path"] in OPEN:
            return True
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(given, self._expected)


def _method(scope: MutableMapping[str, Any]) -> str:
    """The method of a request; clients may invent others."""
    return (
        scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"
    )


async def _unauthorized(send: Send) -> None:
    words = b'{"message": "Send the header Authorization: Bearer TOKEN with the token of this server."}'
    await _plain(send, 401, words, [(b"www-authenticate", b"Bearer")])


async def _plain(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    known = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": known})
    await send({"type": "http.response.body", "body": body})
