"""`FitConfig`: all options of a fit, such as the roles of columns, the split, and the model. Imports no torch.

The options are declared only here. The fields of `FitConfig` are the keys of a settings file, the options of `ddpn
fit`, `tune` and `diagnose`, and the arguments of `FitConfig(...)` in Python.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SkipValidation,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from ddpn.members import find_member_name, list_mixable_members
from ddpn.members.network_options import TRAINING_OPTIONS, NetworkOptions, check_training_options
from ddpn.networks.heads import DEFAULT_LIKELIHOOD, TOTALS, check_likelihood, make_head
from ddpn.rows.count_range import CountRange
from ddpn.rows.groups import is_grouped_by_inputs
from ddpn.runtime.column_lists import resolve_names, split_words
from ddpn.runtime.deadlines import parse_duration
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import check_choice, check_column, check_keys, is_integer, is_number
from ddpn.storage.contents import JsonObject
from ddpn.tables.layout import Layout

if TYPE_CHECKING:
    from ddpn.estimators import CountRegressor, DDPNRegressor

#: The default shares of training, validation and test rows.
SHARES = (0.7, 0.1, 0.2)
#: The members that are mixed with the networks by default, if the number of networks is given.
MIXED = ("glm",)
#: The models with which a model is compared by default, in addition to its own members.
BASELINES = ("constant", "poisson_glm", "trees")
#: The member whose number of networks is `n_networks`.
NETWORKS = "networks"
#: The new name of each option that had another name in an earlier version.
_NEW_NAMES = {"members": "n_networks"}
#: The shortest time budget, in seconds.
MIN_SECONDS = 10

# How values are read --------------------------------------------------------------------------------------------------


def _read_column(value: object, info: ValidationInfo) -> object:
    if value is not None and not isinstance(value, str):
        raise ConfigError(argument=str(info.field_name), must="be the name of a column", got=repr(value))
    return value


def _check_names(names: object, info: ValidationInfo) -> tuple[str, ...]:
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        must = 'be a list of names such as ["one", "two"]'
        raise ConfigError(argument=str(info.field_name), must=must, got=repr(names))
    return tuple(names)


def _read_columns(value: object, info: ValidationInfo) -> tuple[str, ...]:
    """Convert one column name, or a list of column names, to a tuple.

    A string is not split at commas, because a column name may contain commas.
    """
    return _check_names([value] if isinstance(value, str) else value, info)


def _read_names(value: object, info: ValidationInfo) -> tuple[str, ...] | None:
    """Convert a list of names, or a string of names separated by commas, to a tuple. None stays None.

    For the option `missing`, a list may also have numbers, which are converted to strings.
    """
    if value is None:
        return None
    words = split_words(value) if isinstance(value, str) else value
    if info.field_name == "missing" and isinstance(words, list | tuple):
        words = [str(word) if is_number(word) else word for word in words]
    return tuple(word.strip() for word in _check_names(words, info) if word.strip())


def _read_likelihood(value: object, info: ValidationInfo) -> object:
    return _read_names(value, info) if isinstance(value, str) and "," in value else _read_list(value)


def _read_member(value: object, info: ValidationInfo) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ConfigError(argument=str(info.field_name), must="be the name of a member", got=repr(value))
    return find_member_name(value)


def _read_list(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _read_number(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _read_table(value: object, info: ValidationInfo) -> object:
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(argument=str(info.field_name), must="be a table of options", got=repr(value))
    return value


#: The name of a column, names of columns, and words, as they come from a settings file, a command or Python.
Column = Annotated[str, BeforeValidator(_read_column)]
Columns = Annotated[tuple[str, ...], BeforeValidator(_read_columns)]
Words = Annotated[tuple[str, ...], BeforeValidator(_read_names)]
#: Values that are not checked here, but by `NetworkOptions`, `CountRange`, the likelihood or the estimator.
Integer = Annotated[int, SkipValidation]
Number = Annotated[float, SkipValidation]
Text = Annotated[str, SkipValidation]


class ModelConfig(BaseModel):
    """The options of a `FitConfig` that are passed on to the estimator. None means the estimator's default.

    `components` and `beta` become entries of the estimator's `head_options`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lower: Integer | None = None
    upper: Integer | None = None
    censored_above: Integer | None = None
    fractional: Literal["error", "round"] = "error"
    likelihood: Annotated[str | tuple[str, ...] | None, SkipValidation, BeforeValidator(_read_likelihood)] = None
    components: Integer | None = None
    beta: Number | None = None
    head_options: Annotated[JsonObject | None, BeforeValidator(_read_table)] = None
    n_networks: Annotated[int | Literal["auto"] | None, SkipValidation, BeforeValidator(_read_number)] = None
    epochs: Annotated[int | str | None, SkipValidation, BeforeValidator(_read_number)] = None
    hidden: Annotated[tuple[int, ...] | str | None, SkipValidation, BeforeValidator(_read_list)] = None
    numeric: Text | None = None
    mix_with: Annotated[tuple[str, ...] | None, BeforeValidator(_read_names)] = None
    training_options: Annotated[JsonObject | None, BeforeValidator(_read_table)] = None
    time_budget: Annotated[str | float | None, SkipValidation] = None
    device: Text | None = None

    @property
    def estimator_options(self) -> JsonObject:
        """The options that are not None, as keyword arguments of the estimator."""
        options = {name: getattr(self, name) for name in ModelConfig.model_fields if getattr(self, name) is not None}
        head_options = {name: options.pop(name) for name in ("components", "beta") if name in options}
        return options | ({"head_options": options.get("head_options", {}) | head_options} if head_options else {})


class FitConfig(ModelConfig):
    """The options of a fit: the target, the roles of columns, the split and the model.

    Options are checked as far as possible without the table. For options of the model, None means the estimator's
    default.

    Parameters
    ----------
    target : str
        The column of counts.
    exposure, weight : str, optional
        The columns with the exposure and with the weight of each row.
    upper_column : str, optional
        The column with the largest possible count of each row.
    censored : str, optional
        The column that is true in rows whose count is right-censored: the true count is at least the given one.
    drop : tuple of str
        Columns to leave out.
    use : tuple of str
        Columns to keep although they look useless or like leaks of the target.
    category : tuple of str
        Columns of numbers to treat as categories.
    missing : tuple of str
        Further words and numbers that stand for a missing value.
    group : tuple of str
        Columns that identify groups of rows, such as persons. All rows of a group belong to the same fold, and all of
        them are training, validation or test rows. These columns are not inputs, unless `use` names them. The value
        "equal-inputs" puts rows with equal or nearly equal inputs into the same group.
    split_column : str, optional
        The column that says whether a row is a "train", "validation" or "test" row. Default: rows are split at random.
    time : str, optional
        The column of times by which rows are split. The last rows become test rows.
    test_size : float, optional
        The share of rows to hold out as test rows. By default, a table of up to 5,000 rows has no test rows: the model
        is cross-fitted, and every row is scored out of fold. A fifth of the rows is held out if the table is larger, if
        rows are split by time, or if the number of networks is given.
    shares : tuple of float, optional
        Shares of training, validation and test rows, which sum to 1. They cannot be combined with `test_size`.
    seed : int
        Seed of the split and of the training.
    compare_with : tuple of str
        Further models to fit and score for comparison, keys of `ddpn.members.MEMBERS`.
    interval_groups : str, optional
        The column with the group of each row. Intervals are calibrated within each group.
    sheet, skip_rows : optional
        The sheet of a workbook, and the number of rows above the header (`ddpn.tables.layout.Layout`).
    only : str, optional
        The single model to fit instead of a mixture, a key of `ddpn.members.MEMBERS`. `mix_with` is then ignored, and
        `n_networks` has an effect only if the model is "networks".
    lower, upper, censored_above, fractional
        The range of counts, and the treatment of fractions, as in `CountRegressor`.
    n_networks : int or "auto", optional
        The number of networks of an ensemble. By default ("auto"), the model is instead a mixture of boosted trees, a
        GLM and networks.
    components, beta
        Options of the likelihood, which may also be given in `head_options`.
    likelihood, head_options, hidden, numeric, epochs, mix_with, training_options, time_budget, device
        Arguments of `CountRegressor`.

    Examples
    --------
    >>> FitConfig(target="visits", n_networks=3).split_shares
    (0.7, 0.1, 0.2)
    """

    target: Column
    exposure: Column | None = None
    weight: Column | None = None
    upper_column: Column | None = None
    censored: Column | None = None
    drop: Columns = ()
    use: Columns = ()
    category: Columns = ()
    missing: Words = ()
    group: Columns = ()
    split_column: Column | None = None
    time: Column | None = None
    test_size: Number | None = None
    shares: Annotated[tuple[float, ...] | None, SkipValidation, BeforeValidator(_read_list)] = None
    seed: Integer = 0
    compare_with: Words = BASELINES
    interval_groups: Column | None = None
    sheet: Text | None = None
    skip_rows: Integer | None = None
    only: Annotated[str | None, BeforeValidator(_read_member)] = None

    def __init__(self, **options: Any) -> None:
        try:
            super().__init__(**options)
        except ValidationError as error:
            raise _to_config_error(error) from None

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise a `ConfigError` if an option is invalid, or if options cannot be combined."""
        if self.split_column is not None and self.time is not None:
            raise ConfigError("Give either `split_column` or `time`, not both.")
        if not is_integer(self.seed) or not 0 <= self.seed < 2**32:
            raise ConfigError(argument="seed", must="be an integer from 0 to 2^32 - 1", got=repr(self.seed))
        if self.test_size is not None:
            self._check_test_size()
        shares = SHARES if self.shares is None else self.shares
        good = len(shares) == 3 and all(is_number(share) and share >= 0 for share in shares)
        if not good or abs(sum(shares) - 1) > 1e-9 or not (shares[0] > 0 and shares[2] > 0):
            must = "be three numbers that sum to 1 (training, validation, test), the first and last above 0"
            raise ConfigError(argument="shares", must=must, got=str(list(shares)))
        columns = self.target, self.exposure, self.weight, self.censored, self.split_column
        roles = [name for name in columns if name is not None]
        # A column may be both exposure and upper bound, such as the number of beds for patients.
        taken = roles if self.upper_column in (None, self.exposure) else [*roles, self.upper_column]
        for name in taken:
            if taken.count(name) > 1:
                raise ConfigError(f"Column {name!r} has more than one role.")
        for name in self.group:
            if name in taken:
                raise ConfigError(f"Column {name!r} has more than one role.")
        for name in roles:
            if name in (*self.drop, *self.use):
                raise ConfigError(f"Column {name!r} has a role, so it cannot be in `drop` or `use`.")
        if self.interval_groups == self.target:
            reason = "not be the target, which is unknown when you predict"
            raise ConfigError(argument="interval_groups", must=reason)
        for name, names in (("compare_with", self.compare_with), ("mix_with", self.mix_with or ())):
            for kind in names:
                check_choice(name, kind, list_mixable_members())
        _ = self.layout  # checks its options
        self._check_model()
        return self

    def _check_test_size(self) -> None:
        for name in ("shares", "split_column"):
            if getattr(self, name) is not None:
                raise ConfigError(f"Give either `test_size` or `{name}`, not both.")
        if not is_number(self.test_size) or not 0.0 < float(self.test_size or 0.0) < 1.0:
            raise ConfigError(argument="test_size", must="lie between 0 and 1", got=repr(self.test_size))

    @property
    def split_shares(self) -> tuple[float, ...]:
        """The shares of training, validation and test rows, which apply if test rows are held out."""
        if self.test_size is None:
            return SHARES if self.shares is None else self.shares
        fitted = (1.0 - self.test_size) / (SHARES[0] + SHARES[1])
        return fitted * SHARES[0], fitted * SHARES[1], self.test_size

    @property
    def asks_for_test_rows(self) -> bool:
        """True if an option requires test rows. Otherwise, a table of up to 5,000 rows has none."""
        values = self.test_size, self.shares, self.split_column, self.time
        return self.ensemble_size is not None or any(value is not None for value in values)

    def with_test_rows(self) -> Self:
        """Return a configuration that requires test rows: this one, or else a copy with the default shares."""
        return self if self.asks_for_test_rows else self.replace(shares=SHARES)

    def replace(self, **changes: object) -> Self:
        """Return a copy in which the options `changes` have new values. All options are checked again."""
        return type(self)(**self.as_dict() | changes)

    @property
    def ensemble_size(self) -> int | None:
        """The number of networks if the model is an ensemble of networks, as set by `n_networks`; otherwise None."""
        if self.n_networks is None or self.n_networks == "auto" or self.only not in (None, NETWORKS):
            return None
        return self.n_networks

    @property
    def seconds(self) -> float | None:
        """The time budget in seconds; None if there is no limit."""
        return None if self.time_budget is None else parse_duration(self.time_budget, "time_budget")

    @property
    def count_range(self) -> CountRange:
        """The range of possible counts, and whether counts are censored."""
        if self.upper_column is not None and self.upper is not None:
            raise ConfigError("Give either `upper` or `upper_column`, not both.")
        has_upper = self.upper_column is not None or self.upper is not None
        is_total = self.likelihood in TOTALS and has_upper
        lower = 0 if self.lower is None else self.lower
        return CountRange(
            lower, self.upper, self.censored_above, upper_per_row=self.upper_column is not None, upper_is_total=is_total
        )

    @property
    def as_text(self) -> list[str]:
        """The columns to read as text, because `category` names them. For example, 007 must not become 7."""
        return [name for value in self.category for name in (value, *split_words(value))]

    @property
    def layout(self) -> Layout:
        """The position of the table in its file: the sheet, and the number of rows above the header."""
        return Layout(self.sheet, self.skip_rows)

    def resolve_columns(self, columns: Sequence[str]) -> Self:
        """Return a copy in which every name of a column is one of `columns`, the columns of the table.

        In `drop`, `use`, `category` and `group`, a string that is not itself the name of a column is split at commas.
        If an option names a column that does not exist, raise an `InputError`.
        """
        roles = ("target", "exposure", "weight", "upper_column", "censored", "split_column", "time", "interval_groups")
        names = {role: getattr(self, role) for role in roles}
        named = [(role, name) for role, name in names.items() if isinstance(name, str)]
        for role, name in named:
            check_column(name, columns, role, InputError)
        lists = ("drop", "use", "category", *(() if is_grouped_by_inputs(self.group, columns) else ("group",)))
        resolved: dict[str, object] = {role: resolve_names(getattr(self, role), columns, role) for role in lists}
        return self.replace(**resolved)

    def _check_model(self) -> None:
        """Raise a `ConfigError` if an option of the model is found to be invalid without torch.

        Options that require torch are checked by `check_with_torch`.
        """
        names = check_likelihood(DEFAULT_LIKELIHOOD if self.likelihood is None else self.likelihood)
        totals = [name for name in names if name in TOTALS]
        has_total = self.count_range.upper_is_total or self.exposure or "total" in (self.head_options or {})
        if totals and not has_total:
            raise ConfigError(
                f"{totals[0]} needs the largest possible count (number of trials) of every row. Give `upper`, "
                "`upper_column` or `exposure`."
            )
        options = self.estimator_options
        network_options: JsonObject = {
            name: options[name] for name in ("hidden", "numeric", "epochs") if name in options
        }
        if self.ensemble_size is not None:
            network_options["n_networks"] = self.ensemble_size
            if self.time_budget is not None:
                what = "cannot be combined with `n_networks`, because only a mixture adapts to the time"
                raise ConfigError(what, argument="time_budget", remedy="Leave out one of them.")
        if self.seconds is not None and self.seconds < MIN_SECONDS:
            must = f"be at least {MIN_SECONDS} seconds, because loading and saving take time"
            raise ConfigError(argument="time_budget", must=must, got=repr(self.time_budget))
        NetworkOptions(**network_options, **check_training_options(self.training_options))

    def check_with_torch(self) -> None:
        """Raise a `ConfigError` if an option that only torch can check is invalid.

        torch is imported only if such an option is set.
        """
        names = {name for name in ("head_options", "training_options", "mix_with") if self.estimator_options.get(name)}
        is_mixture = isinstance(self.likelihood, tuple)
        is_plain = self.count_range.is_unrestricted and self.censored is None
        if names or is_mixture or not is_plain or self.device not in (None, "auto", "cpu"):
            head = self.regressor().build_options()[0]
            if not is_plain:
                head.check_bounds()

    def regressor(self, **arguments: Any) -> "CountRegressor | DDPNRegressor":
        """Make the unfitted estimator: a `DDPNRegressor` if the number of networks is set, else a `CountRegressor`.

        The `DDPNRegressor` has the network options that `CountRegressor` uses by default. Unless `mix_with` says
        otherwise, its networks are mixed with a GLM if there is one for the likelihood. `arguments` are further keyword
        arguments of the estimator.
        """
        from ddpn.estimators import CountRegressor, DDPNRegressor

        if self.ensemble_size is None:
            options = {**self.estimator_options, "random_state": self.seed}
            options.pop("n_networks", None)
            if self.only is not None:
                options |= {"members": (self.only,), "mix_with": ()}
            return CountRegressor(**options, **arguments)
        head = make_head(DEFAULT_LIKELIHOOD if self.likelihood is None else self.likelihood)
        has_line = head.glm_likelihood and self.hidden not in ((), [])
        mixed = tuple(name for name in MIXED if name != "glm" or has_line) if head.is_count else ()
        networks = {"likelihood": DEFAULT_LIKELIHOOD, "hidden": "auto", "numeric": "auto", "preset": "default"}
        options = {"mix_with": mixed, **networks}
        options |= {**self.estimator_options, "random_state": self.seed}
        if self.only is not None:
            options["mix_with"] = ()
        return DDPNRegressor(**options, validation=None, **arguments)

    def as_dict(self) -> dict[str, object]:
        """Return the options that are not None, ready for JSON."""
        options = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in options.items() if v is not None}


def _to_config_error(error: ValidationError) -> ConfigError:
    """Convert the first error in pydantic's `ValidationError` to a `ConfigError`."""
    first = error.errors()[0]
    raised = first.get("ctx", {}).get("error")
    if isinstance(raised, ConfigError):
        return raised
    name = str(first["loc"][0])
    if first["type"] == "missing":
        return ConfigError("The target is missing. Name the column of counts with `target`.")
    if first["type"] == "extra_forbidden":
        if name in _NEW_NAMES:
            return ConfigError(f"There is no option {name!r}. It is now called {_NEW_NAMES[name]!r}.")
        return ConfigError(f"There is no option {name!r}.")
    must = {"literal_error": "be {expected}", "bool_type": "be true or false"}.get(first["type"], first["msg"])
    return ConfigError(argument=name, must=must.format(**first.get("ctx", {})), got=repr(first["input"]))


def read_config(options: Mapping[str, object], file: Path | None = None) -> FitConfig:
    """Make a configuration from `options`.

    Options that are None are read from `file`, a settings file (TOML), if it is given.
    """
    settings: JsonObject = {}
    if file is not None:
        try:
            settings = tomllib.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"File not found: {file}") from None
        except (OSError, UnicodeDecodeError):
            raise InputError(f"{file} cannot be read as text.") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{file} is not valid TOML: {error}") from None
    for key in settings:
        if key in _NEW_NAMES:
            raise ConfigError(f"Unknown key {key!r} in {file}. It is now called {_NEW_NAMES[key]!r}.")
        if key in TRAINING_OPTIONS:
            raise ConfigError(f"Unknown key {key!r} in {file}. Put it into the table [training_options].")
    check_keys(settings, FitConfig.model_fields, str(file))
    return FitConfig(**settings | {name: value for name, value in options.items() if value is not None})
