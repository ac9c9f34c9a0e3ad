"""Arguments and options of the commands on models, with what --help says of them."""

from pathlib import Path
from typing import Annotated

import typer

_FILES = "CSV, TSV, Parquet or Feather by its ending, text also .gz or .zst; - is CSV from standard input."
_LAWS = "double_poisson (default), poisson, negative_binomial, gaussian, faithful_gaussian or natural_gaussian."


def _option(help_: str, *names: str, metavar: str | None = None) -> typer.models.OptionInfo:
    return typer.Option(*names, help=help_, metavar=metavar)


Data = Annotated[str, typer.Argument(metavar="DATA", help=f"The table: {_FILES}")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that `ddpn fit` wrote.")]
Json = Annotated[bool, _option("One JSON document on standard output, nothing else there.", "--json")]
Overwrite = Annotated[bool, _option("Replace what is there.", "--overwrite")]

# Of fit: roles of columns, the model, the split.
NewModel = Annotated[Path, _option("The folder to write the model to.", "-o", "--out", metavar="MODEL")]
Target = Annotated[str | None, _option("The column of counts to predict.", metavar="COLUMN")]
Exposure = Annotated[
    str | None, _option("The column with the known scale of a row: days observed, area, customers.", metavar="COLUMN")
]
Weight = Annotated[str | None, _option("The column that says how many times a row counts.", metavar="COLUMN")]
Drop = Annotated[str | None, _option("Columns to leave out: one,two.", metavar="COLUMNS")]
Use = Annotated[str | None, _option("Columns to keep that would be left out, such as ids.", metavar="COLUMNS")]
Category = Annotated[str | None, _option("Columns of numbers that are names: zip,station.", metavar="COLUMNS")]
Likelihood = Annotated[str | None, _option(_LAWS, metavar="NAME")]
Beta = Annotated[float | None, _option("0 (default) for the likelihood, up to 1 for the best mean.")]
Members = Annotated[int | None, _option("Networks in the ensemble; 5 by default.")]
Epochs = Annotated[int | None, _option("Looks at every row; by default as many as the rows suggest.")]
Seed = Annotated[int | None, _option("Of the split and of all random numbers; 0 by default.")]
SplitColumn = Annotated[
    str | None, _option("The column that says train, validation or test in every row.", metavar="COLUMN")
]
Time = Annotated[
    str | None, _option("The column of dates or numbers to split by: the last rows are the test.", metavar="COLUMN")
]
Config = Annotated[
    Path | None,
    _option(
        "A TOML file with any of these options (split_column for --split-column), shares, and any argument of "
        "CountRegressor.",
        metavar="FILE",
    ),
]
Device = Annotated[str | None, _option("auto (default), cpu or cuda.")]

# Of predict.
Table = Annotated[str, _option("CSV, TSV, Parquet or Feather by its ending; - for CSV.", "-o", "--out", metavar="OUT")]
Coverage = Annotated[float, _option("Of the interval from lower to upper.")]
Quantiles = Annotated[str, _option("Levels of quantiles: 0.1,0.5,0.9 gives q0.1, q0.5, q0.9.", metavar="LEVELS")]
Pmf = Annotated[int | None, _option("Probabilities p0, p1, ... up to this count.", metavar="COUNT")]
Keep = Annotated[bool, _option("Keep the columns of DATA in front.", "--keep")]
Ood = Annotated[
    float | None, _option("Flag rows stranger than all but this share of usual ones, such as 0.01.", metavar="ALPHA")
]

# Of report.
Html = Annotated[Path, _option("The report to write, one HTML file.", "-o", "--out", metavar="HTML")]
