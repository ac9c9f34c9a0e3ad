"""What an experiment is: its methods, the settings of its trainings, and every run they make."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any, Self

from ddpn.errors import ConfigError
from ddpn.experiments.naming import known
from ddpn.heads import Head, make_head
from ddpn.training.runtime import PRECISIONS
from ddpn.validation import is_integer, is_number


@dataclass(frozen=True)
class Method:
    """A row of a table: a likelihood with its options; `exact` is a GLM fitted to its maximum likelihood."""

    name: str
    label: str
    head: str
    options: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False

    @property
    def is_gaussian(self) -> bool:
        """Whether its law lives on the line."""
        return "gaussian" in self.head

    def make_head(self, **more: Any) -> Head:
        """The head, with options of one run besides its own."""
        return make_head(self.head, **{**self.options, **more})


#: Seeds count on from the first.
_MOST = 2**31
_OPTIONAL = ("epochs", "steps", "at_once")
#: What changes how long a training takes and not what comes out.
_IRRELEVANT = ("at_once", "workers")


@dataclass(frozen=True)
class Training:
    """The paper's settings: AdamW and a cosine, no warm-up, no averaging, no clipping, a head that starts anywhere.

    `steps` stands in for `epochs` where rows are fewer than the paper's. A batch is computed in `accumulate` parts, and
    `at_once` members are in memory together, all of them where it is None; `workers` processes decode pictures.
    """

    batch_size: int
    lr: float
    weight_decay: float
    epochs: int | None = None
    steps: int | None = None
    hidden: tuple[int, ...] = (128, 128, 128, 64)
    members: int = 5
    seed: int = 0
    warmup: float = 0.0
    precision: str = "float32"
    accumulate: int = 1
    at_once: int | None = None
    workers: int = 0

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "steps", "members", "accumulate", "at_once"):
            value = getattr(self, name)
            if not (is_integer(value) and value >= 1) and (value is not None or name not in _OPTIONAL):
                raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}. Change it.")
        if not is_integer(self.workers) or self.workers < 0:
            raise ConfigError(f"workers must be a whole number of at least 0, got {self.workers!r}. Change it.")
        if not is_integer(self.seed) or not 0 <= self.seed < _MOST:
            raise ConfigError(f"seed must be a whole number from 0 to {_MOST - 1}, got {self.seed!r}. Use 0, say.")
        if not self.hidden or not all(is_integer(width) and width >= 1 for width in self.hidden):
            raise ConfigError(f"hidden must hold widths of at least 1, got {list(self.hidden)}. Use [128, 64], say.")
        if not is_number(self.lr) or not 0.0 < self.lr < math.inf:
            raise ConfigError(f"lr must be finite and positive, got {self.lr!r}. Use 1e-3, say.")
        if not is_number(self.weight_decay) or not 0.0 <= self.weight_decay < math.inf:
            raise ConfigError(f"weight_decay must be finite and at least 0, got {self.weight_decay!r}. Change it.")
        if not is_number(self.warmup) or not 0.0 <= self.warmup < 1.0:
            raise ConfigError(
                f"warmup must lie in [0, 1), got {self.warmup!r}. It is the share of steps before the top."
            )
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision must be {' or '.join(PRECISIONS)}, got {self.precision!r}. Change it.")

    def epochs_for(self, rows: int) -> int:
        """How often `rows` rows are gone through."""
        if self.epochs is not None:
            return self.epochs
        assert self.steps is not None
        return max(1, round(self.steps / max(1, rows // min(self.batch_size, rows))))


#: Every setting of a training.
TRAINING = [f.name for f in fields(Training)]


@dataclass(frozen=True)
class Experiment:
    """What one file of the catalogue says.

    One that is `apart` is run by its own name, not as one of all: it wants data or machines that few have.
    With `dry_steps` it is a dry run: so many steps on a few rows, with random weights in place of pretrained ones.
    """

    name: str
    title: str
    paper: str
    methods: tuple[Method, ...]
    training: Training
    minutes: float
    data: Mapping[str, Any] | None = None
    simulation: Mapping[str, Any] | None = None
    reference: Mapping[str, str] | None = None
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    figures: tuple[str, ...] = ()
    analytic: bool = False
    backbone: Mapping[str, Any] | None = None
    outside: str | None = None
    apart: bool = False
    dry_steps: int | None = None

    @property
    def needs(self) -> str:
        """Where its rows come from."""
        if self.analytic:
            return "nothing"
        return f"data set {self.data['name']}" if self.data else f"simulated ({(self.simulation or {})['name']})"

    def with_methods(self, names: Iterable[str]) -> Self:
        """Only these methods, in the experiment's order."""
        names = list(names)
        known("methods", names, [m.name for m in self.methods], self.name)
        return replace(self, methods=tuple(m for m in self.methods if m.name in names))

    def with_training(self, **changes: Any) -> Self:
        """Other settings of the training."""
        return replace(self, training=replace(self.training, **changes))

    def runs(self) -> list["Run"]:
        """Every method at every point of the grid."""
        points = [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]
        return [Run(self, method, point) for method in self.methods for point in points]


@dataclass(frozen=True)
class Run:
    """One training (or exact fit) of an experiment."""

    experiment: Experiment
    method: Method
    point: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The folder it writes."""
        return "-".join([self.method.name, *(f"{key}={value}" for key, value in self.point.items())])

    @property
    def head(self) -> Head:
        """The head at this point of the grid."""
        options = {key: value for key, value in self.point.items() if key not in TRAINING}
        return self.method.make_head(**options)

    @property
    def training(self) -> Training:
        """The settings at this point of the grid."""
        return replace(self.experiment.training, **{key: value for key, value in self.point.items() if key in TRAINING})

    def as_dict(self) -> dict[str, Any]:
        """All its results depend on, besides the rows."""
        source = dict(self.experiment.data or self.experiment.simulation or {})
        head = {"name": self.head.name, "options": self.head.options}
        common = {"source": source, "head": head, "exact": self.method.exact}
        if self.experiment.dry_steps is not None:
            common |= {"dry_steps": self.experiment.dry_steps}
        if self.method.exact:
            # The maximum of a likelihood does not depend on how a network would be trained.
            return common
        settings = {name: getattr(self.training, name) for name in TRAINING if name not in _IRRELEVANT}
        if self.experiment.backbone is not None:
            common |= {"backbone": dict(self.experiment.backbone)}
        return common | settings | {"hidden": list(self.training.hidden)}
