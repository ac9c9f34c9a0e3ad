"""Arguments and options that several commands have, with their help texts. Imports no torch.

Those of `ddpn fit`, `tune` and `diagnose` that make a plan are in `ddpn.workflow.config`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ddpn.runtime.cluster import RayCluster

_FILES = (
    "CSV, TSV, Excel, JSON lines, Parquet or Feather, depending on its ending; CSV and TSV also as .gz or .zst; - "
    "reads CSV from standard input."
)


def option(metavar: str | None, help_: str, *names: str, panel: str | None = None) -> Any:
    """An option: what it takes (None for a flag), its help text, and its names if they are not that of the argument."""
    return typer.Option(*names, help=help_, metavar=metavar, rich_help_panel=panel)


#: The options of a plan: `ddpn.cli.program.command` replaces a parameter of this type by one for each.
Given = dict[str, object]

# Tables, models and outputs.
Data = Annotated[str, typer.Argument(metavar="DATA", help=f"The table: {_FILES}")]
Tables = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...",
        help=f"The table: {_FILES} Several files, a folder of them or a pattern such as 'data/*.parquet' are one "
        "table.",
    ),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder written by `ddpn fit`, or by `save` in Python.")]
NewModel = Annotated[Path, option("MODEL", "The folder to save the model in.", "-o", "--out")]
Html = Annotated[Path, option("HTML", "The HTML file to write.", "-o", "--out")]
Json = Annotated[bool, option(None, "Print one JSON document instead of tables.", "--json")]
MaxRows = Annotated[
    str,
    option(
        "NUMBER",
        "If the table has more rows, this many are drawn at random, always the same ones; all uses every row.",
    ),
]
Overwrite = Annotated[bool, option(None, "Replace an existing output.", "--overwrite")]
Config = Annotated[
    Path | None,
    option(
        "FILE",
        "TOML file with any of these options (split_column for --split-column) and with shares, hidden, numeric, "
        "[head_options] and [training_options]. Options given here take precedence.",
    ),
]
Coverage = Annotated[float, option("SHARE", "Minimum probability of the interval from lower to upper.")]
IntervalKind = Annotated[
    str | None,
    option(
        "KIND",
        "narrowest: the interval with the fewest counts; central: between two quantiles. Default: narrowest, and "
        "central for models of censored counts.",
    ),
]

# Roles of columns for commands on a model: as in fit by default, unknown to models saved in Python.
_AS_IN_FIT = "Default: as in `ddpn fit`. Required for a model saved in Python"
COLUMN_OPTIONS = {
    "target": option("COLUMN", f"Column of counts. {_AS_IN_FIT}."),
    "exposure": option("COLUMN", f"Column of exposures. {_AS_IN_FIT} if it was fitted with exposures."),
    "weight": option("COLUMN", "Column of sample weights. Default: as in `ddpn fit`."),
    "upper_column": option("COLUMN", f"Column of the largest possible counts. {_AS_IN_FIT} if it was fitted with one."),
    "censored": option("COLUMN", "Column of true and false for censored counts. Default: as in `ddpn fit`."),
}
#: Columns by role: `ddpn.cli.program.command` replaces a parameter of such a type by these options.
Columns = Annotated[dict[str, str | None], tuple(COLUMN_OPTIONS)]
MonitoredColumns = Annotated[dict[str, str | None], ("target", "exposure", "upper_column", "censored")]
PredictionColumns = Annotated[dict[str, str | None], ("exposure", "upper_column")]

# Where jobs run.
_PANEL = "Cluster"
Cluster = Annotated[
    str | None,
    option(
        "ADDRESS",
        "Run independent fits, or predictions, on a Ray cluster: auto (the cluster of this machine) or HOST:PORT. To "
        "predict, all nodes must be able to read the tables. Needs ddpn[cluster].",
        panel=_PANEL,
    ),
]
GpusPerJob = Annotated[
    float | None,
    option(
        "NUMBER",
        "With --cluster: GPUs per fit, such as 1 or 0.25 (four fits share a GPU). Default: 0.",
        panel=_PANEL,
    ),
]


def cluster_of(address: str | None, gpus: float | None = None) -> "RayCluster | None":
    """The cluster that the options describe, connected; None without one."""
    from ddpn.runtime.errors import ConfigError

    if address is None:
        if gpus is not None:
            raise ConfigError("`gpus_per_job` needs `cluster`.")
        return None
    from ddpn.runtime.cluster import RayCluster

    found = RayCluster(address, gpus=gpus or 0.0)
    found.connect()
    return found
