"""Arguments and options that several commands share, with their help texts. Imports no torch.

Options that can also be set in a settings file are in `ddpn.cli.plan_options`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddpn.cli.plan_options import OPTION_TEXTS

if TYPE_CHECKING:
    from ddpn.runtime.cluster import RayCluster

_FILES = (
    "CSV, TSV (also .gz, .zst), Excel, JSON lines, Parquet or Feather, by its ending; - reads CSV from standard input."
)


def option(metavar: str | None, help_text: str, *names: str, panel: str | None = None) -> Any:
    """Define an option of a command.

    The result is the metadata of the parameter's type: `Annotated[type, option(...)]`.

    `metavar` stands for the option's value on the help page; None means that the option is a flag without a value.
    `names` are the names of the option, such as "--out" and "-o"; by default, it is named after the function's
    argument. `panel` is the section of the help page.
    """
    return typer.Option(*names, help=help_text, metavar=metavar, rich_help_panel=panel)


#: Options that override settings of a file. `ddpn.cli.program.command` replaces such a parameter by these options.
Settings = dict[str, object]

#: Panels of options that --help leaves to --help-all.
_MORE, _COLUMNS = "More options", "Columns of the table"

# Tables, models and outputs.
Data = Annotated[str, typer.Argument(metavar="DATA", help=_FILES)]
Tables = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...",
        help=f"{_FILES} Several files, a folder or a pattern ('data/*.parquet') are one table.",
    ),
]
_SHEET, _SKIP_ROWS = OPTION_TEXTS["sheet"], OPTION_TEXTS["skip_rows"]
Sheet = Annotated[str | None, option(_SHEET.metavar, _SHEET.help, panel=_SHEET.panel)]
SkipRows = Annotated[int | None, option(_SKIP_ROWS.metavar, _SKIP_ROWS.help, panel=_SKIP_ROWS.panel)]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder written by `ddpn fit`, or by `save` in Python.")]
NewModel = Annotated[Path, option("MODEL", "The folder to save the model in.", "-o", "--out")]
Html = Annotated[Path, option("HTML", "The HTML file to write.", "-o", "--out")]
Json = Annotated[bool, option(None, "Print one JSON document instead of tables.", "--json")]
MaxRows = Annotated[
    str,
    option(
        "NUMBER",
        "Rows to draw at random from a longer table, always the same; all uses every row.",
        panel=_MORE,
    ),
]
Overwrite = Annotated[bool, option(None, "Replace an existing output.", "--overwrite")]
Config = Annotated[
    Path | None,
    option(
        "FILE",
        "TOML file with any of these settings and more, such as hidden; options take precedence.",
    ),
]
Coverage = Annotated[float, option("SHARE", "Probability of the interval from lower to upper, at least.")]
IntervalKind = Annotated[
    str | None,
    option(
        "KIND",
        "narrowest (fewest counts) or central (by quantiles). Default: narrowest; central for censored counts.",
        panel=_MORE,
    ),
]

# Roles of columns, for commands on a model. Models that were saved in Python do not store them.
_AS_IN_FIT = "Default: as in the fit. Required for models saved in Python"
COLUMN_OPTIONS = {
    "target": option("COLUMN", f"Column of counts. {_AS_IN_FIT}.", panel=_COLUMNS),
    "exposure": option("COLUMN", f"Column of exposures. {_AS_IN_FIT} with exposures.", panel=_COLUMNS),
    "weight": option("COLUMN", "Column of sample weights. Default: as in the fit.", panel=_COLUMNS),
    "upper_column": option("COLUMN", f"Column of upper bounds. {_AS_IN_FIT} with upper bounds.", panel=_COLUMNS),
    "censored": option(
        "COLUMN", "Column of true and false that marks censored counts. Default: as in the fit.", panel=_COLUMNS
    ),
}
#: Columns by role. `ddpn.cli.program.command` replaces a parameter of such a type by these options.
Columns = Annotated[dict[str, str | None], tuple(COLUMN_OPTIONS)]
MonitoredColumns = Annotated[dict[str, str | None], ("target", "exposure", "upper_column", "censored")]
PredictionColumns = Annotated[dict[str, str | None], ("exposure", "upper_column")]

# Options of clusters.
_PANEL = "Cluster"
Cluster = Annotated[
    str | None,
    option(
        "ADDRESS",
        "Run on a Ray cluster: auto (the cluster of this machine) or HOST:PORT. Needs ddpn[cluster].",
        panel=_PANEL,
    ),
]
GpusPerJob = Annotated[
    float | None,
    option(
        "NUMBER",
        "With --cluster: GPUs per fit; with 0.25, four fits share a GPU. Default: 0.",
        panel=_PANEL,
    ),
]


def connect_cluster(address: str | None, gpus: float | None = None) -> "RayCluster | None":
    """Connect to the Ray cluster at `address`; return None if `address` is None.

    `gpus` is the number of GPUs per job, which may be a fraction; None means no GPUs. Raise a `ConfigError` if `gpus`
    is given without `address`, or if there is no such cluster.
    """
    from ddpn.runtime.errors import ConfigError

    if address is None:
        if gpus is not None:
            raise ConfigError("`gpus_per_job` can only be used with `cluster`. Give both, or neither.")
        return None
    from ddpn.runtime.cluster import RayCluster

    cluster = RayCluster(address, gpus=gpus or 0.0)
    cluster.connect()
    return cluster
