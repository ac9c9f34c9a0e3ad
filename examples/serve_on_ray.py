"""Serve models over HTTP with Ray Serve: replicas in several processes or on several machines.

    serve run examples.serve_on_ray:build models=/models/visits.model replicas=4

It needs `pip install 'ddpn[serve]' 'ray[serve]'`. Every replica loads the models, from paths that are the same on all
machines, and batches its own requests. The replicas read the bearer token from the environment variable DDPN_TOKEN.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ddpn.serving import Limits, create_app
from ddpn.serving.server import name_models


def make_app_builder(paths: Mapping[str, Path]) -> Callable[[], Any]:
    """Return a function that makes the app. Ray sends it to every replica, without the models themselves."""
    folders = {name: path.absolute() for name, path in paths.items()}

    def build_app() -> Any:
        return create_app(folders, token=os.environ.get("DDPN_TOKEN"))

    return build_app


def build(arguments: Mapping[str, str]) -> Any:
    """Build the application of `serve run`: `models` are folders, or NAME=FOLDER, separated by commas."""
    from ray import serve  # replicas need not import it to make the app

    # As many requests at a time as may wait, so that a replica can batch them.
    deployment = serve.deployment(
        serve.ingress(make_app_builder(name_models(arguments["models"].split(","))))(),
        name="ddpn",
        num_replicas=int(arguments.get("replicas", "1")),
        max_ongoing_requests=Limits().max_queue,
    )
    return deployment.bind()
