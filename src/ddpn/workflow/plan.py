"""What a user wants of a fit: roles of columns, the split, and how the model is built. Imports no torch.

The options of a plan are declared once (`PLAN_OPTIONS`): options of the commands, keys of a settings file, and how each
is read.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from ddpn.members import member_named, mixable
from ddpn.members.network_options import TRAINING_OPTIONS, NetworkOptions, check_training_options
from ddpn.networks.heads import DEFAULT_LIKELIHOOD, TOTALS, check_likelihood, make_head
from ddpn.rows.count_range import CountRange
from ddpn.runtime.column_lists import resolve_names, split_words
from ddpn.runtime.deadlines import parse_duration
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import check_choice, check_column, check_keys, is_integer, is_number
from ddpn.tables.row_hashes import is_by_inputs

#: Shares of training, validation and test rows, where there are test rows and nothing else is asked for.
SHARES = (0.7, 0.1, 0.2)
#: What a given number of networks is mixed with by default.
MIXED = ("glm",)
#: What a model is compared with by default, beside each of its own members.
BASELINES = ("constant", "poisson_glm", "trees")
#: The member whose number `members` may be.
NETWORKS = "networks"
#: The shortest time budget.
MIN_SECONDS = 10


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to fit, to which columns and rows: the options of `ddpn fit`, validated as far as that needs no table.

    Parameters
    ----------
    target : str
        The column of counts.
    exposure, weight : str, optional
        The column of each row's known scale, and that of how many times it counts.
    upper_column : str, optional
        The column with the largest possible count of each row.
    censored : str, optional
        The column that flags counts that stand for that many or more.
    drop, use : tuple of str
        Columns to leave out, and columns to keep that would be left out or suspected as leaks.
    category : tuple of str
        Columns of numbers to take as categories.
    missing : tuple of str
        Further words and numbers that stand for a missing value.
    group : tuple of str
        Columns whose values say which rows belong together, such as a person: training, validation and test rows, and
        folds, have different groups. They are not inputs, unless named in `use`. "equal-inputs" keeps rows with equal
        or nearly equal inputs together.
    split_column, time : str, optional
        Split rows by a column (train, validation, test), or by time: the last rows are the test rows. Default: at
        random.
    test_size : float, optional
        The share of rows to hold out as test rows. Default: none with up to 5,000 rows, which are all fitted and scored
        out of fold; a fifth with more rows, with a split by time, or if the number of networks is given.
    shares : tuple of float, optional
        Shares of training, validation and test rows, instead of `test_size`.
    seed : int
        Seed of the split and of the training.
    compare_with : tuple of str
        Members that the model is compared with, names in `ddpn.members.MEMBERS`.
    interval_groups : str, optional
        A column within whose values intervals are calibrated.
    only : str, optional
        The one member to fit, a name in `ddpn.members.MEMBERS`, instead of a mixture. Others are left out, also those
        of `mix_with`; `members` is then the number of networks if these are the one member, else it has no effect.
    model : mapping
        Arguments of `CountRegressor`.

    Examples
    --------
    >>> Plan(target="visits", model={"members": 3}).split_shares
    (0.7, 0.1, 0.2)
    """

    target: str
    exposure: str | None = None
    weight: str | None = None
    upper_column: str | None = None
    censored: str | None = None
    drop: tuple[str, ...] = ()
    use: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    split_column: str | None = None
    time: str | None = None
    test_size: float | None = None
    shares: tuple[float, ...] | None = None
    seed: int = 0
    compare_with: tuple[str, ...] = BASELINES
    interval_groups: str | None = None
    only: str | None = None
    model: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.split_column is not None and self.time is not None:
            raise ConfigError("Give either `split_column` or `time`, not both.")
        if not is_integer(self.seed) or not 0 <= self.seed < 2**32:
            raise ConfigError(argument="seed", must="be an integer from 0 to 2^32 - 1", got=repr(self.seed))
        if self.test_size is not None:
            self._check_test_size()
        shares = SHARES if self.shares is None else tuple(self.shares)
        good = len(shares) == 3 and all(is_number(share) and share >= 0 for share in shares)
        if not good or abs(sum(shares) - 1) > 1e-9 or not (shares[0] > 0 and shares[2] > 0):
            must = "be three numbers that sum to 1 (training, validation, test), the first and last above 0"
            raise ConfigError(argument="shares", must=must, got=str(list(shares)))
        columns = self.target, self.exposure, self.weight, self.censored, self.split_column
        roles = [name for name in columns if name is not None]
        # Exposures may be upper bounds too: so many patients per bed, and no more than there are beds.
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
            raise ConfigError(argument="interval_groups", must="not be the target, which is unknown in prediction")
        for name, given in (("compare_with", self.compare_with), ("mix_with", self.model.get("mix_with", ()))):
            for kind in given:
                check_choice(name, kind, mixable())
        if self.only is not None:
            member_named(self.only)
        self._check_model()

    def _check_test_size(self) -> None:
        for name in ("shares", "split_column"):
            if getattr(self, name) is not None:
                raise ConfigError(f"Give either `test_size` or `{name}`, not both.")
        if not is_number(self.test_size) or not 0.0 < float(self.test_size or 0.0) < 1.0:
            raise ConfigError(argument="test_size", must="lie between 0 and 1", got=repr(self.test_size))

    @property
    def split_shares(self) -> tuple[float, ...]:
        """Shares of training, validation and test rows, where rows are held out for a test."""
        if self.test_size is None:
            return SHARES if self.shares is None else self.shares
        fitted = (1.0 - self.test_size) / (SHARES[0] + SHARES[1])
        return fitted * SHARES[0], fitted * SHARES[1], self.test_size

    @property
    def asks_for_test_rows(self) -> bool:
        """Whether rows must be held out for a test, however few there are."""
        given = self.test_size, self.shares, self.split_column, self.time
        return self.members != "auto" or any(value is not None for value in given)

    def with_test_rows(self) -> "Plan":
        """Return the same plan, asking for test rows: by default a fifth of all."""
        return self if self.asks_for_test_rows else replace(self, shares=SHARES)

    @property
    def members(self) -> int | str:
        """The number of networks, or "auto" for a portfolio, which may have one candidate only."""
        return self.model.get("members", "auto") if self.only in (None, NETWORKS) else "auto"

    @property
    def seconds(self) -> float | None:
        """The time budget; None for no limit."""
        given = self.model.get("time_budget")
        return None if given is None else parse_duration(given, "time_budget")

    @property
    def fractional(self) -> str:
        """What to do with counts that are not integers: "error" or "round"."""
        return str(self.model.get("fractional", "error"))

    @property
    def count_range(self) -> CountRange:
        """The range of possible counts."""
        given = {name: self.model[name] for name in ("lower", "upper", "censored_above") if name in self.model}
        if self.upper_column is not None and given.get("upper") is not None:
            raise ConfigError("Give either `upper` or `upper_column`, not both.")
        has_upper = self.upper_column is not None or given.get("upper") is not None
        is_total = self.model.get("likelihood") in TOTALS and has_upper
        return CountRange(**given, upper_per_row=self.upper_column is not None, upper_is_total=is_total)

    @property
    def as_text(self) -> list[str]:
        """Columns that may be named in `category`, whose digits a file's reader keeps as they are written."""
        return [name for value in self.category for name in (value, *split_words(value))]

    def resolve_columns(self, columns: Sequence[str]) -> Self:
        """Return the plan for a table with these columns; raise an `InputError` for a column that it does not have.

        Lists of columns are split at their commas, except for values that are the name of a column.
        """
        roles = ("target", "exposure", "weight", "upper_column", "censored", "split_column", "time", "interval_groups")
        given = {role: getattr(self, role) for role in roles}
        named = [(role, name) for role, name in given.items() if isinstance(name, str)]
        for role, name in named:
            check_column(name, columns, role, InputError)
        lists = ("drop", "use", "category", *(() if is_by_inputs(self.group, columns) else ("group",)))
        resolved: dict[str, Any] = {role: resolve_names(getattr(self, role), columns, role) for role in lists}
        return replace(self, **resolved)

    def _check_model(self) -> None:
        """What is known to be wrong without torch; `check_with_torch` validates the rest."""
        names = check_likelihood(self.model.get("likelihood", DEFAULT_LIKELIHOOD))
        totals = [name for name in names if name in TOTALS]
        has_total = self.count_range.upper_is_total or self.exposure or "total" in self.model.get("head_options", {})
        if totals and not has_total:
            raise ConfigError(f"{totals[0]} needs the total of every row: give `upper`, `upper_column` or `exposure`.")
        own = {name: self.model[name] for name in ("hidden", "numeric", "epochs") if name in self.model}
        if self.members != "auto":
            own["members"] = self.members
            if self.model.get("time_budget") is not None:
                what = "needs a mixture that fits what there is time for"
                raise ConfigError(what, argument="time_budget", remedy="Leave out `members`.")
        if self.seconds is not None and self.seconds < MIN_SECONDS:
            must = f"be at least {MIN_SECONDS} seconds, which loading and saving take"
            raise ConfigError(argument="time_budget", must=must, got=repr(self.model["time_budget"]))
        NetworkOptions(**own, **check_training_options(self.model.get("training_options")))

    def check_with_torch(self) -> None:
        """Raise a `ConfigError` for an option that only torch can validate; imports it only if there is such an option.

        The defaults need no check.
        """
        given = {name for name in ("head_options", "training_options", "mix_with") if self.model.get(name)}
        is_mixture = not isinstance(self.model.get("likelihood", ""), str)
        is_plain = self.count_range.is_plain and self.censored is None
        if given or is_mixture or not is_plain or self.model.get("device", "auto") not in ("auto", "cpu"):
            head = self.regressor().checked_options()[0]
            if not is_plain:
                head.check_bounds()

    def regressor(self, **more: Any) -> Any:
        """The unfitted estimator: a `CountRegressor`, or a `DDPNRegressor` where a number of networks is given.

        Such networks are those of a `CountRegressor`, and are mixed with `MIXED` by default.
        """
        from ddpn.estimators import CountRegressor, DDPNRegressor

        if self.members == "auto":
            options = {**self.model, "members": "auto", "random_state": self.seed}
            if self.only is not None:
                options |= {"members": (self.only,), "mix_with": ()}
            return CountRegressor(**options, **more)
        head = make_head(self.model.get("likelihood", DEFAULT_LIKELIHOOD))
        has_line = head.glm_likelihood and self.model.get("hidden", "auto") not in ((), [])
        mixed = tuple(name for name in MIXED if name != "glm" or has_line) if head.is_count else ()
        networks = {"likelihood": DEFAULT_LIKELIHOOD, "hidden": "auto", "numeric": "auto", "preset": "default"}
        options = {"mix_with": mixed, **networks}
        options |= {**self.model, "random_state": self.seed}
        if self.only is not None:
            options["mix_with"] = ()
        return DDPNRegressor(**options, validation=None, **more)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


# Options --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanOption:
    """One option of a `Plan`, by its key in a settings file.

    `kind` is how it is read: "column", "columns" (a list of texts, which may have commas between names of columns),
    "names" (a list, or text with commas), "member", "text", "integer", "number", "range" (an integer or text), "table",
    or "list". `part` is "plan" for a field of `Plan`, "model" for an argument of the estimator, "head" for an option of
    the likelihood.
    """

    name: str
    kind: str
    part: str = "plan"

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
            words = split_words(value) if isinstance(value, str) else value
            if self.name == "missing" and isinstance(words, list | tuple):
                words = [str(word) if is_number(word) else word for word in words]
            return tuple(word.strip() for word in self._check_names(words) if word.strip())
        if self.kind == "columns":
            return tuple(self._check_names([value] if isinstance(value, str) else value))
        if self.kind == "range" and isinstance(value, str) and value.isdecimal():
            return int(value)
        return tuple(value) if isinstance(value, list) else value

    def _check_names(self, names: Any) -> Sequence[str]:
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            must = 'be a list of names such as ["one", "two"]'
            raise ConfigError(argument=self.name, must=must, got=repr(names))
        return names


_EVERY = (
    PlanOption("target", "column"),
    PlanOption("exposure", "column"),
    PlanOption("weight", "column"),
    PlanOption("lower", "integer", "model"),
    PlanOption("upper", "integer", "model"),
    PlanOption("upper_column", "column"),
    PlanOption("censored", "column"),
    PlanOption("censored_above", "integer", "model"),
    PlanOption("drop", "columns"),
    PlanOption("use", "columns"),
    PlanOption("category", "columns"),
    PlanOption("missing", "names"),
    PlanOption("fractional", "text", "model"),
    PlanOption("likelihood", "text", "model"),
    PlanOption("components", "integer", "head"),
    PlanOption("beta", "number", "head"),
    PlanOption("members", "integer", "model"),
    PlanOption("epochs", "range", "model"),
    PlanOption("mix_with", "names", "model"),
    PlanOption("only", "member"),
    PlanOption("time_budget", "text", "model"),
    PlanOption("compare_with", "names"),
    PlanOption("interval_groups", "column"),
    PlanOption("seed", "integer"),
    PlanOption("group", "columns"),
    PlanOption("test_size", "number"),
    PlanOption("split_column", "column"),
    PlanOption("time", "column"),
    PlanOption("device", "text", "model"),
    PlanOption("shares", "list"),
    PlanOption("hidden", "list", "model"),
    PlanOption("numeric", "text", "model"),
    PlanOption("head_options", "table", "model"),
    PlanOption("training_options", "table", "model"),
)
#: Every option by name.
PLAN_OPTIONS = {option.name: option for option in _EVERY}


def plan_of(given: Mapping[str, Any], file: Path | None = None) -> Plan:
    """The plan of a settings file (TOML); what else is `given` takes precedence, and None counts as not given."""
    settings: dict[str, Any] = {}
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
        if key in TRAINING_OPTIONS:
            raise ConfigError(f"Unknown key {key!r} in {file}. Put it into the table [training_options].")
    check_keys(settings, PLAN_OPTIONS, str(file))
    settings |= {name: value for name, value in given.items() if value is not None}
    if "target" not in settings:
        raise ConfigError("The target is missing: name the column of counts with `target`.")
    parts: dict[str, dict[str, Any]] = {"plan": {}, "model": {}, "head": {}}
    for name, value in settings.items():
        parts[PLAN_OPTIONS[name].part][name] = PLAN_OPTIONS[name].read(value)
    if parts["head"]:
        parts["model"]["head_options"] = {**parts["model"].get("head_options", {}), **parts["head"]}
    return Plan(**parts["plan"], model=parts["model"])


def plan_from(plain: Mapping[str, Any]) -> Plan:
    """The plan that `as_dict` wrote."""
    read: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in plain.items()}
    return Plan(**read)
