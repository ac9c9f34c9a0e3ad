"""Arguments and options of the commands on models, with their help texts. Imports no torch."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ddpn.members import mixable
from ddpn.networks.heads import DEFAULT_LIKELIHOOD

_FILES = (
    "CSV, TSV, Excel, JSON lines, Parquet or Feather, by its ending; CSV and TSV also as .gz or .zst; - reads CSV from "
    "standard input."
)
_MEMBERS = ", ".join(mixable())


def _option(help_: str, *names: str, metavar: str | None = None, panel: str | None = None) -> typer.models.OptionInfo:
    return typer.Option(*names, help=help_, metavar=metavar, rich_help_panel=panel)


_column = partial(_option, panel="Columns of the table")
_count = partial(_option, panel="Range of the counts")
_model = partial(_option, panel="Model")
_evaluation = partial(_option, panel="Split, comparison and calibration")


Data = Annotated[str, typer.Argument(metavar="DATA", help=f"The table: {_FILES}")]
Tables = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...",
        help=f"The tables, predicted one after the other: {_FILES} A folder or a pattern such as 'data/*.parquet' "
        "stands for the files in it.",
    ),
]
OneTable = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...",
        help=f"The table: {_FILES} Several files, a folder of them or a pattern such as 'data/*.parquet' are one "
        "table.",
    ),
]
Stream = Annotated[
    bool | None,
    _option(
        "Read files as a stream instead of into memory. Default: stream them if they would take more than half of the "
        "free memory.",
        "--stream/--no-stream",
    ),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder written by `ddpn fit`, or by `save` in Python.")]
Json = Annotated[bool, _option("Print one JSON document instead of tables.", "--json")]
Overwrite = Annotated[bool, _option("Replace an existing output.", "--overwrite")]

# Options of fit: roles of columns, the model, the split.
NewModel = Annotated[Path, _option("The folder to save the model in.", "-o", "--out", metavar="MODEL")]
Target = Annotated[str | None, _column("Column of counts to predict.", metavar="COLUMN")]
Exposure = Annotated[
    str | None,
    _column("Column of exposures, the known scale of each row: days observed, area, customers.", metavar="COLUMN"),
]
Weight = Annotated[str | None, _column("Column of sample weights.", metavar="COLUMN")]
Lower = Annotated[int | None, _count("Smallest possible count. Default: 0.", metavar="COUNT")]
Upper = Annotated[int | None, _count("Largest possible count of all rows, such as 5 for stars.", metavar="COUNT")]
UpperColumn = Annotated[
    str | None, _count("Column of each row's largest possible count: beds, seats.", metavar="COLUMN")
]
Censored = Annotated[
    str | None,
    _count('Column of true and false; true marks counts that mean "this many or more".', metavar="COLUMN"),
]
CensoredAbove = Annotated[
    int | None, _count('Counts of this size or more are recorded as this one ("10 or more").', metavar="COUNT")
]
Drop = Annotated[str | None, _column("Columns to leave out, separated by commas.", metavar="COLUMNS")]
Use = Annotated[
    str | None,
    _column(
        "Columns to keep although they look like ids or target leaks, or are named by --group or --time.",
        metavar="COLUMNS",
    ),
]
Fractional = Annotated[
    str | None,
    _column("round rounds counts such as 2.5; error, the default, rejects them.", metavar="MODE"),
]
Category = Annotated[
    str | None, _column("Numeric columns to treat as categorical, such as zip,station.", metavar="COLUMNS")
]
Missing = Annotated[
    str | None,
    _column(
        "Further words and numbers that mean a missing value, separated by commas, such as unknown,-999.",
        metavar="WORDS",
    ),
]
Likelihood = Annotated[
    str | None,
    _model(
        "Distribution of the counts, such as mixed, double_poisson, negative_binomial or poisson; several names, "
        "separated by commas, are mixed per row. `ddpn likelihoods` lists all, `ddpn diagnose` recommends one. "
        f"Default: {DEFAULT_LIKELIHOOD}.",
        metavar="NAMES",
    ),
]
Components = Annotated[
    int | None, _model("Mix this many distributions of one likelihood per row. Default: 1.", metavar="NUMBER")
]
Beta = Annotated[
    float | None,
    _model(
        "For --likelihood double_poisson: how much training favours the mean over the likelihood, from 0 to 1. "
        "Default: 0.",
        metavar="NUMBER",
    ),
]
Members = Annotated[
    int | None,
    _model(
        "Networks in an ensemble, mixed with a GLM. Default: boosted trees, a GLM and networks, weighted.",
        metavar="NUMBER",
    ),
]
Only = Annotated[
    str | None,
    _model(
        "Fit this member alone, such as trees, instead of a mixture: a name accepted by --mix-with, or from the "
        "leaderboard.",
        metavar="NAME",
    ),
]
Budget = Annotated[
    str | None,
    _model(
        "Time for the whole command, such as 60s or 10m: fits as much as the time allows. Default: no limit.",
        metavar="TIME",
    ),
]
Epochs = Annotated[
    str | None, _model("Passes over the training rows; auto depends on their number. Default: auto.", metavar="NUMBER")
]
MixWith = Annotated[
    str | None,
    _model(
        f"Models to mix with the networks, weighted on held-out rows: any of {_MEMBERS}, separated by commas; '' for "
        "none. Default with --members: glm.",
        metavar="NAMES",
    ),
]
CompareWith = Annotated[
    str | None,
    _evaluation(
        "Models to compare with; the names are those of --mix-with. Default: constant,poisson_glm,trees.",
        metavar="NAMES",
    ),
]
Recalibrate = Annotated[
    str | None,
    _evaluation(
        "auto recalibrates the predicted distributions if that improves the CRPS (the error of a distribution) of "
        "held-out rows; off never does. Default: auto.",
        metavar="MODE",
    ),
]
IntervalGroups = Annotated[
    str | None,
    _evaluation(
        "Calibrate intervals within each value of this column, or within this many ranges of the predicted mean.",
        metavar="COLUMN",
    ),
]
Seed = Annotated[
    int | None, _evaluation("Random seed of the split and of everything else. Default: 0.", metavar="NUMBER")
]
Group = Annotated[
    str | None,
    _evaluation(
        "Columns that identify rows that belong together, such as person; several, separated by commas, are combined. "
        "Training, validation and test rows then have different groups, so that scores are those for new groups. The "
        "columns are not inputs, unless --use names them. equal-inputs keeps rows with equal inputs together.",
        metavar="COLUMNS",
    ),
]
SplitColumn = Annotated[
    str | None, _evaluation("Column that holds train, validation or test in every row.", metavar="COLUMN")
]
Time = Annotated[
    str | None,
    _evaluation("Column of dates or numbers to split by: the last rows are the test rows.", metavar="COLUMN"),
]
Config = Annotated[
    Path | None,
    _option(
        "TOML file with any of these options (split_column for --split-column) and with shares, hidden, numeric, "
        "[head_options] and [training_options]. Options given here take precedence.",
        metavar="FILE",
    ),
]
Device = Annotated[
    str | None, _option("Where to train: cpu, cuda, or auto (a GPU if there is one). Default: auto.", metavar="NAME")
]

# Options of predict.
Table = Annotated[
    str,
    _option(
        "The file to write: CSV, TSV, Parquet or Feather, by its ending; - writes CSV to standard output.",
        "-o",
        "--out",
        metavar="OUT",
    ),
]
Coverage = Annotated[float, _option("Coverage of the interval from lower to upper.", metavar="SHARE")]
Quantiles = Annotated[str, _option("Further quantiles: 0.1,0.5,0.9 adds q0.1, q0.5, q0.9.", metavar="LEVELS")]
Pmf = Annotated[int | None, _option("Add the probabilities p0, p1, ... up to this count.", metavar="COUNT")]
Keep = Annotated[bool, _option("Keep the columns of DATA, in front of the predictions.", "--keep")]
Ood = Annotated[
    float | None,
    _option(
        "Flag rows that are unlike the training data, with the reason: those with an ood_pvalue of at most this, such "
        "as 0.01.",
        metavar="ALPHA",
    ),
]

MemberOf = Annotated[
    str | None,
    _option(
        "Predict with this member alone, such as trees: a name from the leaderboard. Default: the mixture of members.",
        "--member",
        metavar="NAME",
    ),
]

# Roles of columns for predict, evaluate and report: as in fit by default, unknown to models saved in Python.
_AS_IN_FIT = "Default: as in `ddpn fit`. Required for a model saved in Python"
TargetOf = Annotated[str | None, _option(f"Column of counts. {_AS_IN_FIT}.", "--target", metavar="COLUMN")]
ExposureOf = Annotated[
    str | None,
    _option(f"Column of exposures. {_AS_IN_FIT} if it was fitted with exposures.", "--exposure", metavar="COLUMN"),
]
UpperOf = Annotated[
    str | None,
    _option(
        f"Column of largest possible counts. {_AS_IN_FIT} if it was fitted with one.",
        "--upper-column",
        metavar="COLUMN",
    ),
]
CensoredOf = Annotated[
    str | None,
    _option("Column of true and false for censored counts. Default: as in `ddpn fit`.", "--censored", metavar="COLUMN"),
]
WeightOf = Annotated[
    str | None, _option("Column of sample weights. Default: as in `ddpn fit`.", "--weight", metavar="COLUMN")
]

# Options of report.
Html = Annotated[Path, _option("The HTML file to write.", "-o", "--out", metavar="HTML")]
