"""The web application: predictions, models, probes, metrics and the page."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, PlainTextResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from ddpn.runtime.errors import ConfigError, DDPNError
from ddpn.serving import schemas
from ddpn.serving.batching import Batcher
from ddpn.serving.middleware import Limits, Metrics, Middleware
from ddpn.serving.model import ServedModel, about
from ddpn.serving.schemas import STATUSES, RequestError, busy, refusal
from ddpn.storage.contents import JsonObject
from ddpn.storage.model_files import FolderVersion, folder_version

#: Rows from which on answers are written in a thread, as other requests would wait for them.
_LARGE_ANSWER = 100
#: Files of the page.
_PAGE = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}
_LOG = logging.getLogger("ddpn.serving")


class Service:
    """The state of one server: its models by name, batches and metrics. As an ASGI app it answers by `api`.

    A new version of a model folder replaces the model and the `api` while requests are answered.
    """

    def __init__(
        self,
        paths: Mapping[str, str | PathLike[str]],
        limits: Limits,
        needs_token: bool,
        reload_every: float,
        **columns: str | None,
    ) -> None:
        if not paths:
            raise ConfigError("A server needs at least one model.")
        self.limits, self.needs_token, self.metrics = limits, needs_token, Metrics()
        self._reload_every, self._columns = reload_every, columns
        self._seen = {name: folder_version(Path(path)) for name, path in paths.items()}
        self._failed: dict[str, FolderVersion | None] = {}
        self.models = {name: ServedModel(name, Path(path), **columns) for name, path in paths.items()}
        for model in self.models.values():
            self.metrics.model.labels(model.name).info({"version": model.version})
        self.batcher = Batcher(limits, self.metrics)
        self.is_ready = False
        self.api = api(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.api(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Start the watch over model folders; at the end, finish what was taken."""
        watch = asyncio.create_task(self._watch())
        self.is_ready = True
        yield
        self.is_ready = False
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        await self.batcher.stop()

    async def _watch(self) -> None:
        """Load new versions as they appear, until cancelled."""
        while self._reload_every:
            await asyncio.sleep(self._reload_every)
            for model in list(self.models.values()):
                now = folder_version(model.path)
                if now not in (None, self._seen[model.name]):
                    await self._refresh(model, now)

    async def _refresh(self, model: ServedModel, now: FolderVersion | None) -> None:
        """Replace a model whose folder has changed; a version that cannot be loaded leaves the old one in place."""
        name = model.name
        try:
            new = await asyncio.to_thread(ServedModel, name, model.path, **self._columns)
        except (DDPNError, OSError, ValueError, KeyError) as error:
            if self._failed.get(name) != now:  # tried again each time, as it may be half written, but reported once
                self._failed[name] = now
                self.metrics.reloads.labels(name, "failed").inc()
                _LOG.error("reload failed", extra={"fields": {"model": name, "error": str(error)}})
            return
        self.models[name], self._seen[name] = new, now
        self.metrics.reloads.labels(name, "loaded").inc()
        self.metrics.model.labels(name).info({"version": new.version})
        self.api = api(self)
        _LOG.info("reloaded", extra={"fields": {"model": name, "version": new.version}})

    async def predict(self, model: ServedModel, given: schemas.PredictRequest) -> Response:
        """Predict the rows of a request (`schemas.PredictOptions`)."""
        answers = await self.batcher.submit(model, given.rows, given.spec)
        self.metrics.rows.labels(model.name).inc(len(answers))
        self.metrics.ood.labels(model.name).inc(sum(bool(answer.get("ood")) for answer in answers))
        found = {"model": model.name, "version": model.version, "coverage": given.coverage, "predictions": answers}
        return await asyncio.to_thread(_json, found) if len(answers) >= _LARGE_ANSWER else _json(found)

    async def show_models(self) -> Response:
        """All models."""
        known = self.models.values()
        return _json(
            {"models": [{"name": m.name, "version": m.version, "target": m.folder.roles.target} for m in known]}
        )

    async def livez(self) -> Response:
        """Whether the process answers, and predictions end."""
        if self.batcher.is_stuck:
            raise RequestError("A prediction does not end.", 503)
        return _json({"status": "alive"})

    async def readyz(self) -> Response:
        """Whether models are loaded and predictions are made."""
        if not self.is_ready:
            raise busy("The server is starting or stopping.")
        return _json({"status": "ready", "models": {model.name: model.version for model in self.models.values()}})

    async def show_metrics(self) -> Response:
        """Metrics for Prometheus."""
        content, kind = self.metrics.text()
        return Response(content, headers={"content-type": kind})


def _json(found: JsonObject) -> Response:
    content = json.dumps(found, allow_nan=False, separators=(",", ":")).encode()
    return Response(content, media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    body = getattr(request.scope.get("endpoint"), "__annotations__", {}).get("given")
    return refusal(error, body).response()


async def _failed(request: Request, error: Exception) -> Response:
    return RequestError("The server failed. Its log has the details.", 500).response()


def api(service: Service) -> FastAPI:
    """The routes for the versions of models that are loaded now, with their OpenAPI document."""
    models = list(service.models.values())
    known = (f"{m.name} (predicts {m.folder.roles.target or 'counts'}, version {m.version})" for m in models)
    found = FastAPI(
        title="Count predictions by ddpn",
        version=version("ddpn"),
        description=f"Models: {', '.join(known)}. Rows are objects with a value per column; null is a missing value.",
        lifespan=service.lifespan,
        docs_url=None,
        redoc_url=None,
        responses={status: {"description": words, "model": schemas.Problems} for status, words in STATUSES.items()},
        # The document says that requests must have a bearer token, which `Middleware` checks.
        dependencies=[Depends(HTTPBearer(scheme_name="token", auto_error=False))] if service.needs_token else [],
    )
    for error in (RequestValidationError, HTTPException, RequestError):
        found.add_exception_handler(error, _refused)
    found.add_exception_handler(Exception, _failed)
    for model in models:
        _add_model(found, service, model)
    found.get("/models", summary="All models")(service.show_models)
    found.get("/livez", summary="Whether the process answers")(service.livez)
    found.get("/readyz", summary="Whether models are loaded and predictions are made")(service.readyz)
    found.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)(service.show_metrics)
    for path, name in _PAGE.items():
        found.get(path, include_in_schema=False)(partial(_page, name))
    return found


def _add_model(app: FastAPI, service: Service, model: ServedModel) -> None:
    """Add the paths of one model below /models/NAME, and those of the default model."""
    body: Any = schemas.request_model(model.name, model.Row, service.limits.max_rows)

    async def show() -> Response:
        return _json(about(model))

    async def predict(request: Request, given: body) -> Response:  # `_refused` reads the annotation
        request.scope["ddpn"] |= {"model": model.name, "rows": len(given.rows)}
        return await service.predict(model, given)

    is_default = model is next(iter(service.models.values()))
    for start in (f"/models/{model.name}", *([""] if is_default else [])):
        app.post(f"{start}/predict", response_model=schemas.Predictions, summary="Predict rows")(predict)
        app.get(start or "/model", summary="The model: columns, scores, calibration and limits")(show)


async def _page(name: str) -> Response:
    return FileResponse(str(files("ddpn.serving") / "page" / name))


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
        Its attribute `app.api` is a FastAPI app, which is replaced with a new version of a model.
    """
    service = Service(paths, limits or Limits(), token is not None, reload_every, **columns)
    return Middleware(service, service.metrics, service.limits, token)
