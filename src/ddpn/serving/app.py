"""The web application, with routes for predictions, descriptions of models, health checks, metrics and the web page."""

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
from ddpn.serving.model import ServedModel, describe_model
from ddpn.serving.schemas import STATUSES, RequestError, retry_later, to_request_error
from ddpn.storage.contents import JsonObject
from ddpn.storage.model_files import FolderVersion, folder_version

#: The fewest rows of an answer that is serialised in a thread, so that other requests need not wait.
_MIN_ROWS_FOR_THREAD = 100
#: Files of the web page by path.
_PAGE_FILES = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}
_LOG = logging.getLogger("ddpn.serving")


class Service:
    """The state of a running server: its models by name, its queue of requests, and its metrics.

    It is an ASGI app that forwards requests to `api`, the FastAPI app with the routes. When a model folder gets a new
    version, the service loads the model and builds `api` again, while it keeps answering requests.

    The arguments are those of `create_app`, except that `needs_token` says whether requests need a bearer token; the
    token itself is checked by `Middleware`.
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
            raise ConfigError("A server needs at least one model. Give a model folder.")
        self.limits, self.needs_token, self.metrics = limits, needs_token, Metrics()
        self._reload_every, self._columns = reload_every, columns
        self._loaded_versions = {name: folder_version(Path(path)) for name, path in paths.items()}
        self._failed_versions: dict[str, FolderVersion | None] = {}
        self.models = {name: ServedModel(name, Path(path), **columns) for name, path in paths.items()}
        for model in self.models.values():
            self.metrics.model.labels(model.name).info({"version": model.version})
        self.batcher = Batcher(limits, self.metrics)
        self.is_ready = False
        self.api = build_api(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.api(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Watch the model folders while the server runs; when it stops, finish the accepted requests."""
        watch = asyncio.create_task(self._watch_folders())
        self.is_ready = True
        yield
        self.is_ready = False
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        await self.batcher.stop()

    async def _watch_folders(self) -> None:
        """Check the model folders at regular intervals, and reload models that have a new version.

        This coroutine runs until it is cancelled.
        """
        while self._reload_every:
            await asyncio.sleep(self._reload_every)
            for model in list(self.models.values()):
                version = folder_version(model.path)
                if version not in (None, self._loaded_versions[model.name]):
                    await self._reload_model(model, version)

    async def _reload_model(self, model: ServedModel, version: FolderVersion | None) -> None:
        """Replace a model by the new version of its folder.

        If the new version cannot be loaded, keep the old one, and log the error. `version` identifies the new version
        (`folder_version`), so that its error is logged only once.
        """
        name = model.name
        try:
            new_model = await asyncio.to_thread(ServedModel, name, model.path, **self._columns)
        except (DDPNError, OSError, ValueError, KeyError) as error:
            if (
                self._failed_versions.get(name) != version
            ):  # each version is reported once, but tried again, because it may be half written
                self._failed_versions[name] = version
                self.metrics.reloads.labels(name, "failed").inc()
                _LOG.error("reload failed", extra={"fields": {"model": name, "error": str(error)}})
            return
        self.models[name], self._loaded_versions[name] = new_model, version
        self.metrics.reloads.labels(name, "loaded").inc()
        self.metrics.model.labels(name).info({"version": new_model.version})
        self.api = build_api(self)
        _LOG.info("reloaded", extra={"fields": {"model": name, "version": new_model.version}})

    async def predict(self, model: ServedModel, request: schemas.PredictRequest) -> Response:
        """Predict the rows of a request, and return the JSON response."""
        answers = await self.batcher.submit(model, request.rows, request.spec)
        self.metrics.rows.labels(model.name).inc(len(answers))
        self.metrics.ood.labels(model.name).inc(sum(bool(answer.get("ood")) for answer in answers))
        body = {"model": model.name, "version": model.version, "coverage": request.coverage, "predictions": answers}
        return (
            await asyncio.to_thread(_to_response, body) if len(answers) >= _MIN_ROWS_FOR_THREAD else _to_response(body)
        )

    async def show_models(self) -> Response:
        """Return the names, versions and targets of all models."""
        models = self.models.values()
        return _to_response(
            {
                "models": [
                    {"name": model.name, "version": model.version, "target": model.folder.roles.target}
                    for model in models
                ]
            }
        )

    async def livez(self) -> Response:
        """Answer a liveness probe: the status is 503 if a prediction takes over twice the time limit of a request."""
        if self.batcher.is_stuck:
            raise RequestError("A prediction takes too long. Restart the server.", 503)
        return _to_response({"status": "alive"})

    async def readyz(self) -> Response:
        """Answer a readiness probe: the status is 503 while the server starts or stops."""
        if not self.is_ready:
            raise retry_later("The server is starting or stopping.")
        return _to_response(
            {"status": "ready", "models": {model.name: model.version for model in self.models.values()}}
        )

    async def show_metrics(self) -> Response:
        """Return the metrics of the server in the text format of Prometheus."""
        content, kind = self.metrics.render()
        return Response(content, headers={"content-type": kind})


def _to_response(content: JsonObject) -> Response:
    body = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    return Response(body, media_type="application/json")


async def _answer_error(request: Request, error: Exception) -> Response:
    body = getattr(request.scope.get("endpoint"), "__annotations__", {}).get("body")
    return to_request_error(error, body).response()


async def _answer_failure(request: Request, error: Exception) -> Response:
    return RequestError("The server failed. Its log has the details.", 500).response()


def build_api(service: Service) -> FastAPI:
    """Build the FastAPI app with the routes and the OpenAPI document for the current models of a service."""
    models = list(service.models.values())
    descriptions = (
        f"{model.name} (predicts {model.folder.roles.target or 'counts'}, version {model.version})" for model in models
    )
    app = FastAPI(
        title="Count predictions by ddpn",
        version=version("ddpn"),
        description=f"Models: {', '.join(descriptions)}. Rows are objects with a value per column; null is a missing "
        "value.",
        lifespan=service.lifespan,
        docs_url=None,
        redoc_url=None,
        responses={
            status: {"description": description, "model": schemas.Problems} for status, description in STATUSES.items()
        },
        # Documents that requests need a bearer token, which `Middleware` checks.
        dependencies=[Depends(HTTPBearer(scheme_name="token", auto_error=False))] if service.needs_token else [],
    )
    for error in (RequestValidationError, HTTPException, RequestError):
        app.add_exception_handler(error, _answer_error)
    app.add_exception_handler(Exception, _answer_failure)
    for model in models:
        _add_routes(app, service, model)
    app.get("/models", summary="All models")(service.show_models)
    app.get("/livez", summary="Check that the process is alive")(service.livez)
    app.get("/readyz", summary="Check that models are loaded")(service.readyz)
    app.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)(service.show_metrics)
    for path, name in _PAGE_FILES.items():
        app.get(path, include_in_schema=False)(partial(_send_page, name))
    return app


def _add_routes(app: FastAPI, service: Service, model: ServedModel) -> None:
    """Add the routes of a model below /models/NAME. For the default model, also add the routes /predict and /model."""
    request_type: Any = schemas.make_request_model(model.name, model.Row, service.limits.max_rows)

    async def show() -> Response:
        return _to_response(describe_model(model))

    async def predict(request: Request, body: request_type) -> Response:  # `_answer_error` reads the annotation
        request.scope["ddpn"] |= {"model": model.name, "rows": len(body.rows)}
        return await service.predict(model, body)

    is_default = model is next(iter(service.models.values()))
    for prefix in (f"/models/{model.name}", *([""] if is_default else [])):
        app.post(f"{prefix}/predict", response_model=schemas.Predictions, summary="Predict rows")(predict)
        app.get(prefix or "/model", summary="The model: columns, scores, calibration and limits")(show)


async def _send_page(name: str) -> Response:
    return FileResponse(str(files("ddpn.serving") / "page" / name))


def create_app(
    paths: Mapping[str, str | PathLike[str]],
    *,
    limits: Limits | None = None,
    token: str | None = None,
    reload_every: float = 2.0,
    **columns: str | None,
) -> Middleware:
    """Create an ASGI app that serves models; needs the extra `serve`.

    Parameters
    ----------
    paths : mapping of str to path
        Model folders by name; the first is the default.
    limits : Limits, optional
        Limits on requests. Default: `Limits()`.
    token : str, optional
        The bearer token that requests must contain. Default: none is needed.
    reload_every : float
        Seconds between two checks for new versions of the folders. 0 means never.
    **columns
        The names of the columns with the exposure (`exposure`) and the upper bound (`upper`) of each row. They are
        needed for models that were saved in Python, because such models do not store the names.

    Returns
    -------
    ASGI app
        Its attribute `app.api` is a FastAPI app, which is replaced when a new version of a model is loaded.
    """
    service = Service(paths, limits or Limits(), token is not None, reload_every, **columns)
    return Middleware(service, service.metrics, service.limits, token)
