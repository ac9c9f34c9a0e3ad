"""The options of commands that can run on a Ray cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from ddpn.cluster.prediction import RayBlocks
    from ddpn.executors import Executor
    from ddpn.predictions.request import Request
    from ddpn.workflow.tables import Tables

_PANEL = "Cluster"

Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run independent fits on a Ray cluster: auto is that of this machine, else HOST:PORT. Needs "
        "ddpn[cluster].",
        rich_help_panel=_PANEL,
    ),
]
PredictionCluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Predict on a Ray cluster, whose nodes all see the tables: auto is that of this machine, else HOST:PORT. "
        "Needs ddpn[cluster].",
        rich_help_panel=_PANEL,
    ),
]
GpusPerJob = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        help="With --cluster: GPUs of each fit, such as 1 or 0.25 (four fits share a GPU). Default: 0.",
        rich_help_panel=_PANEL,
    ),
]


@contextmanager
def blocks_on(
    cluster: str | None, model: "Path", columns: dict[str, str | None], tables: "Tables", request: "Request", out: str
) -> Iterator["RayBlocks | None"]:
    """Where blocks of rows are predicted; None without a cluster."""
    if cluster is None:
        yield None
        return
    from ddpn.cluster.prediction import RayBlocks

    blocks = RayBlocks(model, columns, tables, request, out, cluster)
    try:
        yield blocks
    finally:
        blocks.close()


@contextmanager
def executor_for(cluster: str | None, gpus: float | None, jobs: int | None = None) -> Iterator["Executor | None"]:
    """The executor that the options describe; None without a cluster."""
    from ddpn.runtime.errors import ConfigError

    if cluster is None:
        if gpus is not None:
            raise ConfigError("`gpus_per_job` needs `cluster`.")
        yield None
        return
    if jobs is not None:
        raise ConfigError("Give either `jobs` or `cluster`, not both.")
    from ddpn.cluster import RayExecutor

    with RayExecutor(cluster, gpus=gpus or 0.0) as executor:
        yield executor
