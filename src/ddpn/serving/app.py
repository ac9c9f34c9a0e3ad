"""The web application: predictions, explanations, models, probes, metrics and the page."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from importlib.resources import files
from os import PathLike
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from ddpn.serving import schemas
from ddpn.serving.batching import Batcher
from ddpn.serving.catalogue import Catalogue
from ddpn.serving.explaining import explain
from ddpn.serving.middleware import Limits, Metrics, Middleware
from ddpn.serving.model import ServedModel, about
from ddpn.serving.schemas import REFUSALS, RequestError, busy, refusal

#: Rows from which on answers are written in a thread, as other requests would wait for them.
_LARGE_ANSWER = 100
#: Requests to explain that may wait.
_MOST_EXPLAINED = 8
#: Files of the page, with their types.
_PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
_REFUSED = {
    401: "The bearer token is missing or wrong.",
    404: "There is nothing at this path.",
    405: "The path has another method.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body does not say that it is JSON.",
    422: "The request or a row is invalid; the answer names rows and columns.",
    429: "Too many requests are waiting.",
    503: "The answer took too long, or the server is stopping.",
}


class Service:
    """The state of one server: its models, batches and metrics; `api` puts it on the web."""

    def __init__(
        self, paths: Mapping[str, str | PathLike[str]], limits: Limits, reload_every: float, **columns: str | None
    ) -> None:
        self.limits, self.metrics, self._reload_every = limits, Metrics(), reload_every
        self.catalogue = Catalogue(paths, self.metrics, **columns)
        self.batcher = Batcher(limits, self.metrics)
        self._explaining = 0
        self._explainer = ThreadPoolExecutor(1, thread_name_prefix="explain")
        self.is_ready = False

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """Start the batches and the watch over model folders; at the end, finish what was taken."""
        self.batcher.start()
        watch = asyncio.create_task(self.catalogue.watch(self._reload_every)) if self._reload_every else None
        self.is_ready = True
        yield
        self.is_ready = False
        if watch is not None:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
        await self.batcher.stop()
        self._explainer.shutdown(wait=True)

    async def predict(self, model: ServedModel, given: Any) -> Response:
        """Predict the rows of a request (`schemas.PredictOptions`)."""
        answers = await self.batcher.submit(model, given.rows, given.wanted)
        self.metrics.rows.labels(model.name).inc(len(answers))
        self.metrics.ood.labels(model.name).inc(sum(bool(answer.get("ood")) for answer in answers))
        found = {"model": model.name, "version": model.version, "coverage": given.coverage, "predictions": answers}
        return await asyncio.to_thread(_json, found) if len(answers) >= _LARGE_ANSWER else _json(found)

    async def explain(self, model: ServedModel, given: Any) -> Response:
        """Explain the predictions of the rows of a request (`schemas.ExplainOptions`)."""
        if self._explaining >= _MOST_EXPLAINED:
            raise busy(f"{_MOST_EXPLAINED} requests to explain rows are waiting already. Try again in a second.", 429)
        self._explaining += 1
        try:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._explainer, explain, model, given.rows, given.of, given.curves)
        except REFUSALS as error:
            raise refusal(error) from error
        finally:
            self._explaining -= 1
        return await asyncio.to_thread(_json, {"model": model.name, "version": model.version, **found})

    async def models(self) -> Response:
        """All models."""
        known = [{"name": m.name, "version": m.version, "target": m.folder.roles.target} for m in self.catalogue]
        return _json({"models": known})

    async def livez(self) -> Response:
        """Whether the process answers, and predictions end."""
        if self.batcher.is_stuck:
            raise RequestError("A prediction does not end.", 503)
        return _json({"status": "alive"})

    async def readyz(self) -> Response:
        """Whether models are loaded and predictions are made."""
        if not self.is_ready:
            raise busy("The server is starting or stopping.")
        return _json({"status": "ready", "models": {model.name: model.version for model in self.catalogue}})

    async def show_metrics(self) -> Response:
        """Metrics for Prometheus."""
        content, kind = self.metrics.text()
        return Response(content, headers={"content-type": kind})


def _json(found: dict[str, Any]) -> Response:
    content = json.dumps(found, allow_nan=False, separators=(",", ":")).encode()
    return Response(content, media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    body = getattr(request.scope.get("endpoint"), "__annotations__", {}).get("given")
    return refusal(error, body).response()


async def _failed(request: Request, error: Exception) -> Response:
    return RequestError("The server failed. Its log has the details.", 500).response()


def api(service: Service, needs_token: bool) -> FastAPI:
    """The routes for the versions of models that are loaded now, with their OpenAPI document.

    With `needs_token` the document says that requests must have a bearer token, which `Middleware` checks.
    """
    models = list(service.catalogue)
    known = (f"{m.name} (predicts {m.folder.roles.target or 'counts'}, version {m.version})" for m in models)
    found = FastAPI(
        title="Count predictions by ddpn",
        version=version("ddpn"),
        description=f"Models: {', '.join(known)}. Rows are objects with a value per column; null is a missing value.",
        lifespan=service.lifespan,
        docs_url=None,
        redoc_url=None,
        responses={status: {"description": words, "model": schemas.Problems} for status, words in _REFUSED.items()},
        dependencies=[Depends(HTTPBearer(scheme_name="token", auto_error=False))] if needs_token else [],
    )
    found.state.service = service
    for error in (RequestValidationError, HTTPException, RequestError):
        found.add_exception_handler(error, _refused)
    found.add_exception_handler(Exception, _failed)
    for model in models:
        _add_model(found, service, model)
    found.get("/models", summary="All models")(service.models)
    found.get("/livez", summary="Whether the process answers")(service.livez)
    found.get("/readyz", summary="Whether models are loaded and predictions are made")(service.readyz)
    found.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)(service.show_metrics)
    for path, (name, kind) in _PAGE.items():
        found.get(path, include_in_schema=False)(_file(name, kind))
    return found


def _add_model(app: FastAPI, service: Service, model: ServedModel) -> None:
    """Add the paths of one model below /models/NAME, and those of the default model."""
    actions = (
        (service.predict, schemas.PredictOptions, service.limits.max_rows, schemas.Predictions),
        (service.explain, schemas.ExplainOptions, service.limits.explain_rows, schemas.Explanations),
    )

    async def show() -> Response:
        return _json(about(model))

    is_default = model is next(iter(service.catalogue))
    starts = (f"/models/{model.name}", *([""] if is_default else []))
    for act, options, most, answer in actions:
        body, word = schemas.request_model(options, model.name, model.Row, most), act.__name__
        for start in starts:
            summary = f"{word.capitalize()} rows"
            app.post(f"{start}/{word}", response_model=answer, summary=summary)(_endpoint(model, act, body))
    for start in starts:
        summary = "The model: columns, scores, calibration and limits"
        app.get(start or "/model", response_model=schemas.AboutModel, summary=summary)(show)


def _endpoint(model: ServedModel, act: Callable[[ServedModel, Any], Any], body: Any) -> Callable[..., Any]:
    """What answers requests whose body has the type `body`, which `_refused` reads from the annotation."""

    async def answered(request: Request, given: body) -> Response:
        request.scope["ddpn"] |= {"model": model.name, "rows": len(given.rows)}
        return await act(model, given)

    return answered


def _file(name: str, kind: str) -> Callable[[], Any]:
    content = (files("ddpn.serving") / "page" / name).read_bytes()

    async def page() -> Response:
        return Response(content, media_type=kind)

    return page


def create_app(
    paths: Mapping[str, str | PathLike[str]],
    *,
    limits: Limits | None = None,
    token: str | None = None,
    reload_every: float = 2.0,
    **columns: str | None,
) -> Middleware:
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
        Its attribute `app` is a FastAPI app, which is replaced with a new version of a model.
    """
    allowed = limits or Limits()
    service = Service(paths, allowed, reload_every, **columns)
    found = Middleware(api(service, token is not None), service.metrics, allowed, token)

    def replace() -> None:
        found.app = api(service, token is not None)

    service.catalogue.on_version = replace
    return found
