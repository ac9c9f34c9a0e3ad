"""The options of commands that can run on a Ray cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ddpn.runtime.cluster import RayCluster

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


def cluster_of(address: str | None, gpus: float | None = None, jobs: int | None = None) -> "RayCluster | None":
    """The cluster that the options describe, connected; None without one."""
    from ddpn.runtime.errors import ConfigError

    if address is None:
        if gpus is not None:
            raise ConfigError("`gpus_per_job` needs `cluster`.")
        return None
    if jobs is not None:
        raise ConfigError("Give either `jobs` or `cluster`, not both.")
    from ddpn.runtime.cluster import RayCluster

    found = RayCluster(address, gpus=gpus or 0.0)
    found.connect()
    return found
