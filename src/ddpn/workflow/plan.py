"""What a user wants of a fit: roles of columns, the split, and how the model is built."""

import inspect
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from numbers import Real
from pathlib import Path
from typing import Any

from ddpn.errors import ConfigError, InputError
from ddpn.estimators import CountRegressor
from ddpn.workflow.naming import check_keys

#: Shares of training, validation and test rows.
SHARES = (0.7, 0.1, 0.2)
_NAMES = ("target", "exposure", "weight", "split_column", "time")
_LISTS = ("drop", "use", "category")
#: Likelihoods over counts of which there is an exact GLM.
_LINEAR = ("double_poisson", "poisson", "negative_binomial")
#: Arguments of a CountRegressor that a fit from a file decides itself: by its seed and by its split.
_OURS = ("checkpoint", "random_state", "validation", "verbose")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All of it, checked as far as it can be without the table.

    `drop` leaves columns out, `use` keeps those that would be left out, `category` takes numbers as names. Rows are
    split at random by `seed`, by `split_column` (train, validation, test) or by `time` (the last rows are the test).
    `model` holds arguments of `CountRegressor`.

    >>> Plan(target="visits", model={"members": 3}).shares
    (0.7, 0.1, 0.2)
    """

    target: str
    exposure: str | None = None
    weight: str | None = None
    drop: tuple[str, ...] = ()
    use: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    split_column: str | None = None
    time: str | None = None
    shares: tuple[float, ...] = SHARES
    seed: int = 0
    model: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.split_column is not None and self.time is not None:
            raise ConfigError("split_column and time must not both be given, got both. Keep one of them.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed must be a whole number from 0 to 2^32 - 1, got {self.seed!r}. Use 0.")
        good = len(self.shares) == 3 and all(isinstance(s, Real) and s >= 0 for s in self.shares)
        if not good or abs(sum(self.shares) - 1) > 1e-9 or not (self.shares[0] > 0 and self.shares[2] > 0):
            what = "shares must be those of training, validation and test rows, sum to 1, first and last above 0"
            raise ConfigError(f"{what}, got {list(self.shares)}. Use [0.7, 0.1, 0.2].")
        roles = [name for name in (self.target, self.exposure, self.weight, self.split_column) if name is not None]
        for name in roles:
            if roles.count(name) > 1:
                raise ConfigError(f"a column must have one role, got {name!r} with several. Name another column.")
            if name in (*self.drop, *self.use):
                raise ConfigError(f"drop and use must leave columns with a role alone, got {name!r}. Take it out.")

    def regressor(self, **more: Any) -> CountRegressor:
        """The model, not fitted: with the exact GLM among its members where its likelihood has one over counts."""
        linear = self.model.get("likelihood", "double_poisson") in _LINEAR and self.model.get("hidden") != ()
        return CountRegressor(**{"with_glm": linear, **self.model, "random_state": self.seed, **more})

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


def keys() -> list[str]:
    """All keys that a settings file may have."""
    own = [f.name for f in fields(Plan) if f.name != "model"]
    return own + [name for name in inspect.signature(CountRegressor).parameters if name not in _OURS]


def plan_of(given: Mapping[str, Any], file: Path | None = None) -> Plan:
    """The plan of a settings file (TOML), with what else was `given` in place of it; None counts as not given."""
    settings = {} if file is None else _read(file)
    settings |= {name: value for name, value in given.items() if value is not None}
    check_keys(settings, keys(), "the settings" if file is None else str(file))
    if "target" not in settings:
        raise ConfigError("target must be given, got none. Name the column of counts with --target.")
    own = {f.name for f in fields(Plan)}
    model = {name: _tuple(value) for name, value in settings.items() if name not in own}
    plain = {name: _checked(name, value) for name, value in settings.items() if name in own}
    return Plan(**plain, model=model)


def plan_from(plain: Mapping[str, Any]) -> Plan:
    """The plan that `as_dict` wrote."""
    return Plan(**{name: _tuple(value) for name, value in plain.items()})


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"config must be a file, got {file}, which is not there. Check the spelling.") from None
    except (OSError, UnicodeDecodeError):
        raise InputError(f"config must be a text file, got {file}, which cannot be read. Name another.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} must be TOML, got: {error}. Write lines such as: members = 5") from None


def _checked(name: str, value: Any) -> Any:
    if name in _NAMES and not isinstance(value, str):
        raise ConfigError(f"{name} must be the name of a column, got {value!r}. Put it in quotes.")
    if name in _LISTS:
        words = value.split(",") if isinstance(value, str) else value
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise ConfigError(f'{name} must list names of columns, got {value!r}. Write ["one", "two"].')
        return tuple(word.strip() for word in words if word.strip())
    return _tuple(value)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
