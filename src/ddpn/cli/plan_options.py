"""Help texts of the options of `ddpn fit`, `tune` and `diagnose` that define a fit, in the order of the help page.

A panel is a section of the help page. --help shows only everyday options, which have no panel. --help-all shows all
options.
"""

from typing import NamedTuple

from ddpn.members import list_mixable_members
from ddpn.networks.heads import DEFAULT_LIKELIHOOD

_COLUMNS, _RANGE, _MODEL = "Columns of the table", "Range of the counts", "Model"
_EVALUATION, _FILE = "Split, comparison and calibration", "File"
_MIXED = ", ".join(list_mixable_members())
#: Names of the commands that have an option.
_FITS, _ALL = ("fit", "tune"), ("fit", "tune", "diagnose")


class OptionText(NamedTuple):
    """The help text of an option, with its place on the help page.

    - `metavar` stands for the option's value, such as "COLUMN".
    - `panel` is the section of the help page, or None for everyday options.
    - `commands` are the commands that have the option.
    - `flag` is the name of the option. By default, it is the name of the field of `FitConfig`, with hyphens.
    """

    metavar: str
    help: str
    panel: str | None = None
    commands: tuple[str, ...] = _FITS
    flag: str = ""


#: Help texts, keyed by the name of the option in a settings file.
OPTION_TEXTS = {
    "target": OptionText("COLUMN", "Column of counts to predict.", None, _ALL),
    "exposure": OptionText("COLUMN", "Column of each row's known scale: days, area, customers.", None, _ALL),
    "weight": OptionText("COLUMN", "Column of sample weights.", _COLUMNS, _ALL),
    "lower": OptionText("COUNT", "Smallest possible count. Default: 0.", _RANGE, _ALL),
    "upper": OptionText("COUNT", "Largest possible count of all rows, such as 5 for stars.", _RANGE, _ALL),
    "upper_column": OptionText("COLUMN", "Column of each row's largest possible count: beds, seats.", _RANGE, _ALL),
    "censored": OptionText(
        "COLUMN", 'Column of true and false; true marks counts that mean "this many or more".', _RANGE, _ALL
    ),
    "censored_above": OptionText(
        "COUNT", 'Counts of this size or more are recorded as this one ("10 or more").', _RANGE, _ALL
    ),
    "drop": OptionText(
        "COLUMNS",
        "Columns to leave out, separated by commas.",
        None,
        _ALL,
    ),
    "use": OptionText(
        "COLUMNS",
        "Columns to keep although they look like ids or leaks, or define --group or --time.",
        _COLUMNS,
        _ALL,
    ),
    "category": OptionText("COLUMNS", "Numeric columns to treat as categorical, such as zip,station.", None, _ALL),
    "missing": OptionText(
        "WORDS",
        "More words and numbers that mean a missing value, such as unknown,-999.",
        _COLUMNS,
        _ALL,
    ),
    "fractional": OptionText(
        "MODE", "What to do with counts such as 2.5: round them, or error. Default: error.", _COLUMNS, _ALL
    ),
    "likelihood": OptionText(
        "NAMES",
        f"Distribution of the counts, from `ddpn likelihoods`; several are mixed. Default: {DEFAULT_LIKELIHOOD}.",
        _MODEL,
    ),
    "components": OptionText("NUMBER", "Distributions of one likelihood to mix per row. Default: 1.", _MODEL),
    "beta": OptionText(
        "NUMBER",
        "For double_poisson: from 0 (likelihood) to 1, how much training favours the mean. Default: 0.",
        _MODEL,
    ),
    "n_networks": OptionText(
        "NUMBER",
        "Networks in an ensemble, mixed with a GLM. Default: boosted trees, a GLM and networks, weighted.",
        _MODEL,
        flag="--networks",
    ),
    "epochs": OptionText(
        "NUMBER", "Passes over the training rows. Default: auto, which depends on their number.", _MODEL
    ),
    "mix_with": OptionText(
        "NAMES",
        f"Models to mix with the networks: {_MIXED}; '' for none. Default with --networks: glm.",
        _MODEL,
    ),
    "only": OptionText(
        "NAME",
        "Fit this member alone, such as trees: a name of --mix-with or of the leaderboard.",
        None,
        ("fit",),
    ),
    "time_budget": OptionText(
        "TIME",
        "Time limit of the command, such as 60s or 10m. Default: none.",
        None,
        ("fit",),
        flag="--budget",
    ),
    "compare_with": OptionText(
        "NAMES",
        "Models to compare with, named as for --mix-with. Default: constant,poisson_glm,trees.",
        _EVALUATION,
    ),
    "interval_groups": OptionText("COLUMN", "Calibrate intervals within each value of this column.", _EVALUATION),
    "seed": OptionText("NUMBER", "Random seed of the split and of everything else. Default: 0.", _EVALUATION, _ALL),
    "group": OptionText(
        "COLUMNS",
        "Columns that identify rows that belong together, such as person, to score models on new groups; they are "
        "inputs only if --use names them. equal-inputs groups rows with nearly equal inputs.",
        None,
        _ALL,
    ),
    "test_size": OptionText(
        "SHARE",
        "Share of test rows. Default: 0 up to 5,000 rows, else 0.2.",
    ),
    "split_column": OptionText("COLUMN", "Column that holds train, validation or test in every row.", _EVALUATION),
    "time": OptionText("COLUMN", "Column of times: the last rows by it are the test rows."),
    "sheet": OptionText(
        "NAME", "Sheet of a workbook: its name, or its number from 1. Default: the first.", _FILE, _ALL
    ),
    "skip_rows": OptionText("NUMBER", "Rows of the file above the header, such as a title. Default: 0.", _FILE, _ALL),
    "device": OptionText("NAME", "Where to train: cpu, cuda or auto (a GPU if there is one). Default: auto.", _MODEL),
}
