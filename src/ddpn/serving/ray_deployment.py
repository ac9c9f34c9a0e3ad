"""The same app as a deployment of Ray Serve: replicas on several processes or machines. Needs `ray[serve]`.

serve run ddpn.serving.ray_deployment:build models=/models/visits.model replicas=4
"""

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from ddpn.runtime.errors import ConfigError
from ddpn.serving.app import create_app
from ddpn.serving.catalogue import named_paths
from ddpn.serving.limits import Limits
from ddpn.serving.middleware import App, read_token

#: What `build` takes.
_ARGUMENTS = ("models", "replicas", "exposure", "upper")


def ray_application(
    paths: Mapping[str, str | PathLike[str]], *, replicas: int = 1, limits: Limits | None = None, **columns: str | None
) -> Any:
    """A Ray Serve application of one deployment, for `ray.serve.run`.

    Every replica loads the models, from paths that are the same on all machines, and batches its own requests. The
    bearer token is that of the environment variable DDPN_TOKEN of the replicas.

    Parameters
    ----------
    paths : mapping of str to path
        Model folders by name; the first is the default.
    replicas : int
        How many processes serve the models.
    limits : Limits, optional
        Limits of requests, per replica. Default: those of `Limits`.
    **columns
        Columns (exposure, upper) that models saved in Python do not know.

    Returns
    -------
    ray.serve.Application
    """
    serve, allowed = _ray_serve(), limits or Limits()
    app = app_builder(paths, allowed, **columns)
    # As many requests per replica as may wait: micro-batches need them at the same time.
    deployment = serve.deployment(
        serve.ingress(app)(), name="ddpn", num_replicas=replicas, max_ongoing_requests=allowed.max_queue
    )
    return deployment.bind()


def app_builder(paths: Mapping[str, str | PathLike[str]], limits: Limits, **columns: str | None) -> Callable[[], App]:
    """A function that makes the app, which Ray sends to every replica: models themselves are not sent.

    Parameters
    ----------
    paths : mapping of str to path
        Model folders by name.
    limits : Limits
        Limits of requests, per replica.
    **columns
        Columns (exposure, upper) that models saved in Python do not know.
    """
    known = {name: Path(path).absolute() for name, path in paths.items()}

    def app() -> App:
        token = read_token(os.environ.get("DDPN_TOKEN"), None)
        return create_app(known, limits=limits, token=token, reload_every=2.0, **columns)

    return app


def build(arguments: Mapping[str, str]) -> Any:
    """The application of `serve run`, from its arguments: models, separated by commas, replicas, exposure and upper.

    Parameters
    ----------
    arguments : mapping of str to str
        For example {"models": "visits.model,old=visits-2023.model", "replicas": "2"}.
    """
    for name in arguments:
        if name not in _ARGUMENTS:
            raise ConfigError(f"Unknown argument {name!r}. Known: {', '.join(_ARGUMENTS)}.")
    words = [word for word in arguments.get("models", "").split(",") if word]
    if not words:
        raise ConfigError("models must name model folders, such as models=visits.model.")
    replicas = arguments.get("replicas", "1")
    if not replicas.isdigit() or int(replicas) < 1:
        raise ConfigError(f"replicas must be a positive integer, got {replicas!r}.")
    exposure, upper = arguments.get("exposure"), arguments.get("upper")
    return ray_application(named_paths(words), replicas=int(replicas), exposure=exposure, upper=upper)


def _ray_serve() -> Any:
    try:
        return import_module("ray.serve")
    except ImportError:
        raise ConfigError("Ray Serve is not installed: pip install 'ray[serve]'") from None
