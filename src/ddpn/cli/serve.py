"""ddpn serve: predictions over HTTP. Arguments and printing only."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ddpn.cli import options as o
from ddpn.cli.commands import command
from ddpn.cli.options import option

_limit = partial(option, panel="Limits")
Models = Annotated[
    list[str], typer.Argument(metavar="MODEL...", help="Model folders; the first is the default. NAME=MODEL names one.")
]
Host = Annotated[str, option("ADDRESS", "Where to listen; 0.0.0.0 for all networks.")]
Port = Annotated[int, option("NUMBER", "The port; 0 chooses a free one, which is printed.")]
TokenFile = Annotated[
    Path | None,
    option("FILE", "A file with the bearer token that requests must send. Default: the variable DDPN_TOKEN, if set."),
]
Reload = Annotated[float, option("SECONDS", "Seconds between checks for new versions of the models; 0 for never.")]
LogLevel = Annotated[str, option("LEVEL", "debug, info (every request), warning or error.")]
MaxRows = Annotated[int, _limit("NUMBER", "Largest number of rows per request.")]
MaxBytes = Annotated[int, _limit("NUMBER", "Largest number of bytes per request.")]
MaxQueue = Annotated[int, _limit("NUMBER", "Largest number of waiting requests; further ones get status 429.")]
Timeout = Annotated[float, _limit("SECONDS", "Longest time per request.")]
BatchRows = Annotated[int, _limit("NUMBER", "Largest number of rows predicted together.")]
BatchWindow = Annotated[float, _limit("MILLISECONDS", "How long a request waits for others to be predicted together.")]


@command("serve", "All accepted requests were answered.", ends_at_once=False)
def serve(
    models: Models,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    token_file: TokenFile = None,
    reload_every: Reload = 2.0,
    exposure: o.ExposureOf = None,
    upper_column: o.UpperOf = None,
    max_rows: MaxRows = 1000,
    max_bytes: MaxBytes = 2_000_000,
    max_queue: MaxQueue = 256,
    timeout: Timeout = 30.0,
    batch_rows: BatchRows = 256,
    batch_window: BatchWindow = 2.0,
    log_level: LogLevel = "info",
) -> None:
    """Serve models over HTTP: predictions, explanations, metrics, and a page with a what-if form.

    POST /predict takes {"rows": [{column: value, ...}, ...]}; GET /openapi.json describes everything. Requests that
    arrive together are predicted together. A new version of a model folder is loaded without a failed request. After
    SIGTERM or Ctrl-C, the server finishes accepted requests and ends.

    Example: ddpn serve visits.model --port 8000
    """
    from ddpn.runtime.validation import check_choice
    from ddpn.serving.middleware import Limits

    check_choice("log_level", log_level, ("debug", "info", "warning", "error"))
    limits = Limits(
        max_rows=max_rows, max_bytes=max_bytes, max_queue=max_queue, timeout=timeout, batch_rows=batch_rows,
        batch_window=batch_window / 1000.0,
    )  # fmt: skip
    from ddpn.serving.catalogue import named_paths
    from ddpn.serving.middleware import read_token
    from ddpn.serving.server import serve as run

    paths, token = named_paths(models), read_token(os.environ.get("DDPN_TOKEN"), token_file)

    def started(address: str) -> None:
        typer.echo(f"Serving {', '.join(paths)} at {address}")

    run(
        paths, host, port, limits=limits, token=token, reload_every=reload_every, log_level=log_level,
        on_start=started, exposure=exposure, upper=upper_column,
    )  # fmt: skip
