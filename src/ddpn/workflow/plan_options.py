"""The options of a plan, declared once: options of the commands, keys of a settings file, and how each is read.

Imports no torch.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpn.members import mixable
from ddpn.members.names import member_named
from ddpn.networks.heads import DEFAULT_LIKELIHOOD
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import is_number

_COLUMNS, _RANGE, _MODEL = "Columns of the table", "Range of the counts", "Model"
_EVALUATION = "Split, comparison and calibration"
_MIXED = ", ".join(mixable())
#: Commands that have an option.
_FITS, _ALL = ("fit", "tune"), ("fit", "tune", "diagnose")


@dataclass(frozen=True)
class PlanOption:
    """One option of a `Plan`.

    Parameters
    ----------
    name : str
        Its key in a settings file.
    kind : str
        How it is read: "column", "names" (a list, or text with commas), "member", "text", "integer", "number", "range"
        (an integer or text), "table", or "list".
    metavar, help, panel : str
        Of the option; without a help, there is none.
    commands : tuple of str
        The commands with this option.
    part : str
        "plan" for a field of `Plan`, "model" for an argument of the estimator, "head" for an option of the likelihood.
    option : str
        The option, if that is not --name.
    """

    name: str
    kind: str
    metavar: str = ""
    help: str = ""
    panel: str | None = None
    commands: tuple[str, ...] = _FITS
    part: str = "plan"
    option: str = ""

    def read(self, value: Any) -> Any:
        """The value as a `Plan` has it; raises a `ConfigError` for one of another type."""
        if self.kind == "column" and not isinstance(value, str):
            raise ConfigError(argument=self.name, must="be the name of a column", got=repr(value))
        if self.kind == "table" and not isinstance(value, Mapping):
            raise ConfigError(argument=self.name, must="be a table of options", got=repr(value))
        if self.kind == "member":
            if not isinstance(value, str):
                raise ConfigError(argument=self.name, must="be the name of a member", got=repr(value))
            return member_named(value)
        if self.kind == "names" or (self.name == "likelihood" and isinstance(value, str) and "," in value):
            return self._names(value)
        if self.kind == "range" and isinstance(value, str) and value.isdecimal():
            return int(value)
        return tuple(value) if isinstance(value, list) else value

    def _names(self, value: Any) -> tuple[str, ...]:
        words = value.split(",") if isinstance(value, str) else value
        if self.name == "missing" and isinstance(words, list | tuple):
            words = [str(word) if is_number(word) else word for word in words]
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise ConfigError(argument=self.name, must='be a list of names such as ["one", "two"]', got=repr(value))
        return tuple(word.strip() for word in words if word.strip())


_EVERY = (
    PlanOption("target", "column", "COLUMN", "Column of counts to predict.", _COLUMNS, _ALL),
    PlanOption("exposure", "column", "COLUMN",
        "Column of exposures, the known scale of each row: days observed, area, customers.", _COLUMNS, _ALL),
    PlanOption("weight", "column", "COLUMN", "Column of sample weights.", _COLUMNS, _ALL),
    PlanOption("lower", "integer", "COUNT", "Smallest possible count. Default: 0.", _RANGE, _ALL, "model"),
    PlanOption("upper", "integer", "COUNT", "Largest possible count of all rows, such as 5 for stars.", _RANGE, _ALL,
        "model"),
    PlanOption("upper_column", "column", "COLUMN", "Column of each row's largest possible count: beds, seats.", _RANGE,
        _ALL),
    PlanOption("censored", "column", "COLUMN",
        'Column of true and false; true marks counts that mean "this many or more".', _RANGE, _ALL),
    PlanOption("censored_above", "integer", "COUNT",
        'Counts of this size or more are recorded as this one ("10 or more").', _RANGE, _ALL, "model"),
    PlanOption("drop", "names", "COLUMNS", "Columns to leave out, separated by commas.", _COLUMNS, _ALL),
    PlanOption("use", "names", "COLUMNS",
        "Columns to keep although they look like ids or target leaks, or are named by --group or --time.", _COLUMNS,
        _ALL),
    PlanOption("category", "names", "COLUMNS",
        "Numeric columns to treat as categorical, such as zip,station.", _COLUMNS, _ALL),
    PlanOption("missing", "names", "WORDS",
        "Further words and numbers that mean a missing value, separated by commas, such as unknown,-999.", _COLUMNS,
        _ALL),
    PlanOption("fractional", "text", "MODE", "round rounds counts such as 2.5; error, the default, rejects them.",
        _COLUMNS, _ALL, "model"),
    PlanOption("likelihood", "text", "NAMES",
        "Distribution of the counts, such as mixed, double_poisson, negative_binomial or poisson; several names, "
        "separated by commas, are mixed per row. `ddpn likelihoods` lists all, `ddpn diagnose` recommends one. "
        f"Default: {DEFAULT_LIKELIHOOD}.", _MODEL, part="model"),
    PlanOption("components", "integer", "NUMBER", "Mix this many distributions of one likelihood per row. Default: 1.",
        _MODEL, part="head"),
    PlanOption("beta", "number", "NUMBER",
        "For --likelihood double_poisson: how much training favours the mean over the likelihood, from 0 to 1. "
        "Default: 0.", _MODEL, part="head"),
    PlanOption("members", "integer", "NUMBER",
        "Networks in an ensemble, mixed with a GLM. Default: boosted trees, a GLM and networks, weighted.", _MODEL,
        part="model"),
    PlanOption("epochs", "range", "NUMBER",
        "Passes over the training rows; auto depends on their number. Default: auto.", _MODEL, part="model"),
    PlanOption("mix_with", "names", "NAMES",
        f"Models to mix with the networks, weighted on held-out rows: any of {_MIXED}, separated by commas; '' for "
        "none. Default with --members: glm.", _MODEL, part="model"),
    PlanOption("only", "member", "NAME",
        "Fit this member alone, such as trees, instead of a mixture: a name accepted by --mix-with, or from the "
        "leaderboard.", _MODEL, ("fit",)),
    PlanOption("time_budget", "text", "TIME",
        "Time for the whole command, such as 60s or 10m: fits as much as the time allows. Default: no limit.",
        _MODEL, ("fit",), "model", "--budget"),
    PlanOption("compare_with", "names", "NAMES",
        "Models to compare with; the names are those of --mix-with. Default: constant,poisson_glm,trees.",
        _EVALUATION),
    PlanOption("recalibrate", "text", "MODE",
        "auto recalibrates the predicted distributions if that improves the CRPS (the error of a distribution) of "
        "held-out rows; off never does. Default: auto.", _EVALUATION),
    PlanOption("interval_groups", "range", "COLUMN",
        "Calibrate intervals within each value of this column, or within this many ranges of the predicted mean.",
        _EVALUATION),
    PlanOption("seed", "integer", "NUMBER", "Random seed of the split and of everything else. Default: 0.", _EVALUATION,
        _ALL),
    PlanOption("group", "names", "COLUMNS",
        "Columns that identify rows that belong together, such as person; several, separated by commas, are "
        "combined. Training rows and the rows that a model is scored on then have different groups, so that scores are "
        "those for new groups. The columns are not inputs, unless --use names them. equal-inputs keeps rows with equal "
        "inputs together.", _EVALUATION, _ALL),
    PlanOption("split_column", "column", "COLUMN", "Column that holds train, validation or test in every row.",
        _EVALUATION),
    PlanOption("time", "column", "COLUMN", "Column of dates or numbers to split by: the last rows are the test rows.",
        _EVALUATION),
    PlanOption("device", "text", "NAME", "Where to train: cpu, cuda, or auto (a GPU if there is one). Default: auto.",
        part="model"),
    PlanOption("shares", "list"),
    PlanOption("hidden", "list", part="model"),
    PlanOption("numeric", "text", part="model"),
    PlanOption("head_options", "table", part="model"),
    PlanOption("training_options", "table", part="model"),
)  # fmt: skip
#: Every option by name, in the order of help texts.
PLAN_OPTIONS = {option.name: option for option in _EVERY}


def read_toml(file: Path) -> dict[str, Any]:
    """The content of a settings file."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"File not found: {file}") from None
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{file} cannot be read as text.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from None
