"""The web application: predictions, explanations, models, probes, metrics and the page."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from os import PathLike
from typing import Any

from ddpn.runtime.extras import import_extra
from ddpn.serving.batching import Batcher
from ddpn.serving.card import card
from ddpn.serving.catalogue import Catalogue
from ddpn.serving.edge import App, Edge
from ddpn.serving.explaining import explain
from ddpn.serving.metrics import Metrics
from ddpn.serving.model import REFUSALS, ServedModel, refusal
from ddpn.serving.openapi import document
from ddpn.serving.options import Limits, wanted_of
from ddpn.serving.parsing import EXPLAIN_FIELDS, PREDICT_FIELDS, parse
from ddpn.serving.problems import RequestError

#: Bodies and answers from which on JSON is parsed and written in a thread, as others would wait for it.
_LARGE_BODY, _LARGE_ANSWER = 64_000, 100
#: Requests to explain that may wait.
_MOST_EXPLAINED = 8
#: Files of the page, with their types.
_PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}


class Service:
    """The state and the endpoints of one server; `create_app` puts it on the web."""

    def __init__(
        self, paths: Mapping[str, str | PathLike[str]], limits: Limits, reload_every: float, **columns: str | None
    ) -> None:
        self.limits, self.metrics, self._reload_every = limits, Metrics(), reload_every
        self.catalogue = Catalogue(paths, self._on_reload, **columns)
        for model in self.catalogue:
            self.metrics.model(model.name, model.version)
        self.batcher = Batcher(limits, self.metrics.batch)
        self.metrics.waiting(lambda: self.batcher.waiting)
        self._explaining = 0
        self._explainer = ThreadPoolExecutor(1, thread_name_prefix="explain")
        self._ready = False
        self._openapi: tuple[tuple[str, ...], dict[str, Any]] | None = None
        self._responses = import_extra("starlette.responses", "serve")
        self._requests = import_extra("starlette.requests", "serve")
        self._page = {path: (files("ddpn.serving") / "page" / name).read_bytes() for path, (name, _) in _PAGE.items()}

    def _on_reload(self, name: str, succeeded: bool) -> None:
        self.metrics.reload(name, succeeded)
        if succeeded:
            self.metrics.model(name, self.catalogue.find(name).version)

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """Start the batches and the watch over model folders; at the end, finish what was taken."""
        self.batcher.start()
        watch = asyncio.create_task(self.catalogue.watch(self._reload_every)) if self._reload_every else None
        self._ready = True
        yield
        self._ready = False
        if watch is not None:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
        await self.batcher.stop()
        self._explainer.shutdown(wait=True)

    # Endpoints -----------------------------------------------------------------------------------------------------

    async def predict(self, request: Any) -> Any:
        """Predict rows."""
        body, known = await self._body(request), request.scope["ddpn"]

        def read() -> tuple[ServedModel, Any, Any]:
            given = parse(body, PREDICT_FIELDS, self.limits)
            model = self._model(request, given)
            return model, model.reader.read(given["rows"]), wanted_of(given)

        model, rows, wanted = await asyncio.to_thread(read) if len(body) > _LARGE_BODY else read()
        known |= {"model": model.name, "rows": rows.size}
        answers = await self.batcher.submit(model, rows, wanted)
        self.metrics.rows(model.name, answers)
        about = {"model": model.name, "version": model.version, "coverage": wanted.coverage, "predictions": answers}
        return await self._json(about, len(answers))

    async def explain(self, request: Any) -> Any:
        """Explain the predictions of rows."""
        given = parse(await self._body(request), EXPLAIN_FIELDS, self.limits, self.limits.explain_rows)
        model, of, curves = self._model(request, given), given.get("of", "mean"), given.get("curves", False)
        if of not in ("mean", "spread") or not isinstance(of, str):
            raise RequestError("of must be mean or spread.")
        if not isinstance(curves, bool):
            raise RequestError("curves must be true or false.")
        rows = model.reader.read(given["rows"])
        request.scope["ddpn"] |= {"model": model.name, "rows": rows.size}
        if self._explaining >= _MOST_EXPLAINED:
            words = f"{_MOST_EXPLAINED} requests to explain rows are waiting already. Try again in a second."
            raise RequestError(words, status=429, headers={"Retry-After": "1"})
        self._explaining += 1
        try:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._explainer, explain, model, rows, given["rows"], of, curves)
        except REFUSALS as error:
            raise refusal(error) from error
        finally:
            self._explaining -= 1
        return await self._json({"model": model.name, "version": model.version, **found}, _LARGE_ANSWER)

    async def model(self, request: Any) -> Any:
        """The card of a model."""
        return await self._json(card(self._model(request, {})), 0)

    async def models(self, request: Any) -> Any:
        """All models."""
        known = [{"name": m.name, "version": m.version, "target": m.folder.roles.target} for m in self.catalogue]
        return await self._json({"models": known}, 0)

    async def livez(self, request: Any) -> Any:
        """Whether the process answers, and predictions end."""
        if self.batcher.is_stuck:
            raise RequestError("A prediction does not end.", status=503)
        return await self._json({"status": "alive"}, 0)

    async def readyz(self, request: Any) -> Any:
        """Whether models are loaded and predictions are made."""
        if not self._ready:
            raise RequestError("The server is starting or stopping.", status=503, headers={"Retry-After": "1"})
        return await self._json(
            {"status": "ready", "models": dict(zip(self.catalogue.names, self.catalogue.versions, strict=True))}, 0
        )

    async def show_metrics(self, request: Any) -> Any:
        """Metrics for Prometheus."""
        content, kind = self.metrics.text()
        return self._responses.Response(content, headers={"content-type": kind})

    async def openapi(self, request: Any) -> Any:
        """The OpenAPI document, of the versions that are loaded."""
        return await self._json(self.openapi_document(), 0)

    async def page(self, request: Any) -> Any:
        """The page and its parts."""
        kind = _PAGE[request.url.path][1]
        return self._responses.Response(self._page[request.url.path], media_type=kind)

    def openapi_document(self) -> dict[str, Any]:
        """The OpenAPI document as Python values."""
        if self._openapi is None or self._openapi[0] != self.catalogue.versions:
            self._openapi = self.catalogue.versions, document(list(self.catalogue), self.limits)
        return self._openapi[1]

    # What endpoints share --------------------------------------------------------------------------------------------

    def _model(self, request: Any, given: dict[str, Any]) -> ServedModel:
        name = request.path_params.get("name")
        if name is None:
            return self.catalogue.find(given.get("model"), status=422)
        if given.get("model", name) != name:
            raise RequestError("model must be the one of the path, or be left out.")
        return self.catalogue.find(name)

    async def _body(self, request: Any) -> bytes:
        """The body of a request, within the limit; it must say that it is JSON."""
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestError("The body must be JSON: send the header Content-Type: application/json.", status=415)
        most = self.limits.max_bytes
        too_large = RequestError(f"The body must have at most {most:,} bytes. Send fewer rows per request.", status=413)
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length[:20]) > most:
            raise too_large
        parts, size = [], 0
        try:
            async with asyncio.timeout(0.9 * self.limits.timeout):  # before that of the whole request
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > most:
                        raise too_large
                    parts.append(chunk)
        except TimeoutError:
            raise RequestError("The body did not arrive in time.", status=408) from None
        except self._requests.ClientDisconnect:
            raise RequestError("The client went away.", status=400) from None
        return b"".join(parts)

    async def _json(self, found: dict[str, Any], size: int) -> Any:
        content = await asyncio.to_thread(_dumped, found) if size >= _LARGE_ANSWER else _dumped(found)
        return self._responses.Response(content, media_type="application/json")


def _dumped(found: dict[str, Any]) -> bytes:
    return json.dumps(found, allow_nan=False, separators=(",", ":")).encode()


def create_app(
    paths: Mapping[str, str | PathLike[str]],
    *,
    limits: Limits | None = None,
    token: str | None = None,
    reload_every: float = 2.0,
    **columns: str | None,
) -> App:
    """An ASGI app that serves models; needs `ddpn[serve]`.

    Parameters
    ----------
    paths : mapping of str to path
        Model folders by name; the first is the default.
    limits : Limits, optional
        Limits of requests. Default: those of `Limits`.
    token : str, optional
        A bearer token that requests must have.
    reload_every : float
        Seconds between two checks for new versions of the folders; 0 for never.
    **columns
        Columns (exposure, upper) that models saved in Python do not know.

    Returns
    -------
    ASGI app
        With the attribute `service`.
    """
    fastapi = import_extra("fastapi", "serve")
    errors = import_extra("starlette.exceptions", "serve")
    service = Service(paths, limits or Limits(), reload_every, **columns)
    app = fastapi.FastAPI(title="ddpn", lifespan=service.lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    for path, endpoint, method in _routes(service):
        app.add_route(path, _answering(service, path, endpoint), methods=[method])

    async def refused(request: Any, error: Any) -> Any:
        words = {404: "There is nothing at this path.", 405: "This path has another method."}.get(error.status_code)
        content = {"message": words or str(error.detail)}
        return service._responses.Response(
            _dumped(content), error.status_code, media_type="application/json", headers=error.headers
        )

    app.add_exception_handler(errors.HTTPException, refused)
    edge = Edge(app, service.metrics, token)
    edge.service, edge.app = service, app  # type: ignore[attr-defined]
    return edge


def _routes(service: Service) -> list[tuple[str, Callable[[Any], Any], str]]:
    return [
        ("/predict", service.predict, "POST"),
        ("/explain", service.explain, "POST"),
        ("/model", service.model, "GET"),
        ("/models", service.models, "GET"),
        ("/models/{name}", service.model, "GET"),
        ("/models/{name}/predict", service.predict, "POST"),
        ("/models/{name}/explain", service.explain, "POST"),
        ("/livez", service.livez, "GET"),
        ("/readyz", service.readyz, "GET"),
        ("/metrics", service.show_metrics, "GET"),
        ("/openapi.json", service.openapi, "GET"),
        *((path, service.page, "GET") for path in _PAGE),
    ]


def _answering(service: Service, path: str, endpoint: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An endpoint whose refusals become answers, and whose time is limited."""

    async def answer(request: Any) -> Any:
        request.scope["ddpn"]["path"] = path
        try:
            async with asyncio.timeout(service.limits.timeout):
                return await endpoint(request)
        except TimeoutError:
            error = RequestError("The answer took too long.", status=503, headers={"Retry-After": "1"})
        except RequestError as caught:
            error = caught
        return service._responses.Response(
            _dumped(error.document()), error.status, media_type="application/json", headers=error.headers
        )

    return answer
