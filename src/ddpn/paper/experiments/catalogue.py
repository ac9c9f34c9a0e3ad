"""The experiments, which are declared as TOML files in the folder `catalogue`. Imports no torch.

An experiment has methods and a grid of settings. A run is the training of one method at one point of the grid. The
numbers of the paper are in the folder `reference`.
"""

import csv
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.table import Table

from ddpn.networks.heads import HEADS, make_head
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_choice, check_integer, check_number, is_integer
from ddpn.storage.contents import JsonObject

if TYPE_CHECKING:
    from ddpn.networks.heads import Head

#: The largest seed of the first network. Seeds of further networks are added to it.
_LARGEST_SEED = 2**31 - 1
#: The share of the steps, and the most networks, of a quick run.
_QUICK_SHARE, _QUICK_NETWORKS = 0.1, 2
#: The settings that determine the length of a training, one of which an experiment has.
_LENGTHS = ("epochs", "steps")
#: Settings that affect the time of a training but not its result.
_IRRELEVANT = ("at_once",)


@dataclass(frozen=True)
class Method:
    """A method of an experiment: a likelihood (`head`, a name in `ddpn.networks.heads`, with `options`) and its layers.

    `label` is the name in tables. `hidden` are the widths of hidden layers; None takes those of the experiment. A
    method without hidden layers is a GLM, which is trained like a network, as in the paper, or fitted by maximum
    likelihood if `exact` is True. With `dispersion="constant"`, the dispersion is one number for all rows.
    """

    name: str
    label: str
    head: str
    options: JsonObject = field(default_factory=dict)
    hidden: tuple[int, ...] | None = None
    exact: bool = False
    dispersion: str = "predicted"

    @property
    def is_continuous(self) -> bool:
        """True if the method predicts real numbers instead of counts."""
        return not HEADS[self.head].is_count


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of a training. As in the paper, it uses AdamW with a cosine schedule, without averaging or clipping.

    Each network keeps its epoch with the lowest validation `score`; in the paper this is the lowest loss. `snapshots`
    are further states of the same training that a run keeps: the end of an epoch (an integer), or each network's best
    epoch by another score ("crps" or "nll").

    `steps` replaces `epochs` if there are fewer rows than in the paper. A batch is computed in `accumulate` parts, and
    `at_once` networks are in memory together (None: all). `initial_gamma` sets the initial gamma (Appendix A.4).
    Settings of the command line are validated here, the others by `ddpn.networks.training.TrainingConfig`.
    """

    batch_size: int
    lr: float
    weight_decay: float
    epochs: int | None = None
    steps: int | None = None
    hidden: tuple[int, ...] = (128, 128, 128, 64)
    n_networks: int = 5
    seed: int = 0
    warmup: float = 0.0
    precision: str = "float32"
    accumulate: int = 1
    at_once: int | None = None
    initial_gamma: float | None = None
    score: str = "loss"
    snapshots: tuple[int | str, ...] = ()

    def __post_init__(self) -> None:
        check_integer("n_networks", self.n_networks, minimum=1)
        seed_is_valid = is_integer(self.seed) and 0 <= self.seed <= _LARGEST_SEED
        check_number("seed", self.seed, f"an integer from 0 to {_LARGEST_SEED}", seed_is_valid)

    def epochs_for(self, rows: int) -> int:
        """Return the number of epochs for this number of training rows, which follows from `steps` if it is not set."""
        per_epoch = max(1, rows // min(self.batch_size, rows))
        return self.epochs or max(1, round((self.steps or 0) / per_epoch))


#: The names of all settings of a training.
TRAINING = [f.name for f in fields(TrainingSettings)]
_UNTRAINED = TrainingSettings(batch_size=1, lr=1.0, weight_decay=0.0, epochs=1, n_networks=1)


@dataclass(frozen=True)
class Experiment:
    """An experiment, as declared in one file of the catalogue.

    `paper` names the tables and figures of the paper, and `minutes` is the time that it takes. The rows come from a
    data set (`data`) or a `simulation`. `grid` has the values of settings that vary between runs, `reference` says
    which numbers of the paper to show, and `figures` are the names of figures. `ood` names out-of-distribution rows
    that the runs also predict. `in_all` is False if an experiment needs data or machines that few people have; `ddpn
    reproduce all` then skips it. An experiment without methods consists of figures only.
    """

    name: str
    title: str
    paper: str
    minutes: float
    methods: tuple[Method, ...] = ()
    training: TrainingSettings = _UNTRAINED
    data: JsonObject | None = None
    simulation: JsonObject | None = None
    reference: Mapping[str, str] | None = None
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    figures: tuple[str, ...] = ()
    backbone: JsonObject | None = None
    ood: str | None = None
    in_all: bool = True

    def with_training(self, **changes: Any) -> Self:
        """Return the experiment with some training settings changed."""
        return replace(self, training=replace(self.training, **changes))

    def quick(self) -> Self:
        """Return the experiment with a tenth of the training and a new name, so that a full run is not overwritten."""
        shorter: JsonObject = {
            name: _shorten(value) for name in _LENGTHS if (value := getattr(self.training, name)) is not None
        }
        grid = {k: tuple(map(_shorten, values)) if k in _LENGTHS else values for k, values in self.grid.items()}
        kept = self.training.snapshots
        shorter["snapshots"] = tuple(one if isinstance(one, str) else _shorten(one) for one in kept)
        named = replace(self, name=f"{self.name}-quick", title=f"{self.title} (quick run)", grid=grid)
        return named.with_training(n_networks=min(self.training.n_networks, _QUICK_NETWORKS), **shorter)

    def runs(self) -> list["Run"]:
        """List the runs of the experiment: every method at every point of the grid."""
        points = [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]
        return [Run(self, method, point) for method in self.methods for point in points]


def _shorten(length: int) -> int:
    return max(1, round(_QUICK_SHARE * length))


@dataclass(frozen=True)
class Run:
    """One training (or exact fit) of an experiment: a method at a point of the grid.

    `point` has the values of the settings that vary, by name.
    """

    experiment: Experiment
    method: Method
    point: JsonObject

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return "-".join([self.method.name, *(f"{key}={value}" for key, value in self.point.items())])

    @property
    def head(self) -> "Head":
        """The likelihood of the networks, with the options of the method and of this point of the grid."""
        options = {key: value for key, value in self.point.items() if key not in TRAINING}
        return make_head(self.method.head, **{**self.method.options, **options})

    @property
    def training(self) -> TrainingSettings:
        """The settings of the training: those of the experiment, changed by the method and this point of the grid."""
        changes = {key: value for key, value in self.point.items() if key in TRAINING}
        if self.method.hidden is not None:
            changes["hidden"] = self.method.hidden
        return replace(self.experiment.training, **changes)

    @property
    def projection_inputs(self) -> list[str]:
        """What each raw output of the networks is computed from: "features", "detached" or "constant".

        `ddpn.networks.model.Projection` explains these words.
        """
        head = self.head
        constant = head.dispersion_outputs if self.method.dispersion == "constant" else ()
        return ["constant" if number in constant else what for number, what in enumerate(head.sees)]

    def as_dict(self) -> JsonObject:
        """Return everything on which the results of the run depend, except the rows, as values that JSON can hold."""
        source, head = dict(self.experiment.data or self.experiment.simulation or {}), self.head
        common = {"source": source, "head": {"name": head.name, "options": head.options}, "exact": self.method.exact}
        if self.method.dispersion != "predicted":
            common["dispersion"] = self.method.dispersion
        if self.method.exact:
            # An exact fit does not depend on training settings.
            return common
        settings = {name: getattr(self.training, name) for name in TRAINING if name not in _IRRELEVANT}
        if self.experiment.backbone is not None:
            common |= {"backbone": dict(self.experiment.backbone)}
        return common | settings | {name: list(settings[name]) for name in ("hidden", "snapshots")}


# The files ------------------------------------------------------------------------------------------------------------


#: The name that selects every experiment with `in_all`.
EVERY = "all"
_CATALOGUE, _REFERENCE = (files(__package__) / folder for folder in ("catalogue", "reference"))
_METHODS = "methods"


def names() -> list[str]:
    """Return the names of all experiments."""
    paths = [Path(entry.name) for entry in _CATALOGUE.iterdir()]
    return sorted(path.stem for path in paths if path.suffix == ".toml" and path.stem != _METHODS)


def build_listing() -> Table:
    """Build a table of all experiments: what they show and need, and how long they take."""
    table = Table(title="ddpn reproduce NAME")
    for heading in ("experiment", "what it shows", "in the paper", "needs", "network"):
        table.add_column(heading, no_wrap=heading == "experiment", overflow="fold")
    table.add_column("minutes", justify="right")
    for name in names():
        described = experiment(name)
        needs = f"data set {described.data['name']}" if described.data else "nothing"
        if described.simulation:
            needs = f"simulated ({described.simulation['name']})"
        # A file that shows the runs of another experiment has a separate title.
        table.add_row(name, read(name)["title"], described.paper, needs, _network(described), f"{described.minutes:g}")
    table.caption = "Minutes on two CPU cores; 600 or more are estimates for experiments that need a GPU."
    return table


def _network(described: Experiment) -> str:
    """Describe the network of an experiment; "" if it has none."""
    if not described.methods:
        return ""
    backbone = described.backbone or {}
    head = "-".join(map(str, described.training.hidden))
    pretrained = backbone.get("pretrained", "")
    return f"{' '.join(filter(None, [backbone.get('name', ''), pretrained]))} MLP {head}".strip()


def select(
    chosen: Sequence[str],
    *,
    only: Sequence[str] = (),
    quick: bool = False,
    **training: Any,
) -> list[Experiment]:
    """Read the experiments with these names, once each, and change their settings of the training.

    "all" stands for every experiment with `in_all`. If `only` is not empty, it lists methods, each of which must belong
    to one of the experiments. `quick` shortens the training.
    """
    valid_names = [*names(), EVERY]
    if not chosen:
        raise ConfigError(
            f"NAME must be one or more of {', '.join(valid_names)}. The list of experiments describes them."
        )
    for name in chosen:
        check_choice("NAME", name, valid_names)
    all_experiments = (
        [candidate for candidate in map(experiment, names()) if candidate.in_all] if EVERY in chosen else []
    )
    # Keyed by the experiment's own name, because several files may show the runs of one experiment.
    selected = {
        candidate.name: candidate
        for candidate in [*all_experiments, *(experiment(name) for name in chosen if name != EVERY)]
    }
    for method in only:
        check_choice(
            "method in `only`",
            method,
            dict.fromkeys(m.name for candidate in selected.values() for m in candidate.methods),
        )
    shorter = [candidate.quick() if quick else candidate for candidate in selected.values()]
    return [candidate.with_training(**training) for candidate in shorter]


def read(name: str) -> JsonObject:
    """Read the TOML file of an experiment in the catalogue."""
    return tomllib.loads((_CATALOGUE / f"{name}.toml").read_text(encoding="utf-8"))


def reference(table: str, dataset: str | None = None) -> dict[tuple[str, str, str], float]:
    """Read a table of the paper's numbers from the folder `reference`, keyed by (kind, method, metric).

    A kind is a group of rows, such as single networks and ensembles; it is "" in a table without kinds. If the table
    has several data sets, `dataset` selects one of them.
    """
    rows = list(csv.DictReader((_REFERENCE / f"{table}.csv").read_text(encoding="utf-8").splitlines()))
    selected = [row for row in rows if "dataset" not in row or row["dataset"] == dataset]
    return {(row.get("kind", ""), row["method"], row["metric"]): float(row["mean"]) for row in selected}


def methods() -> dict[str, Method]:
    """Return every method by name."""
    return {name: Method(name, **_with_tuples(row)) for name, row in read(_METHODS).items()}


def experiment(name: str) -> Experiment:
    """Return the experiment with this name."""
    return parse(check_choice("experiment", name, names()), read(name))


def parse(name: str, content: JsonObject) -> Experiment:
    """Make the experiment with this name from the content of its TOML file.

    If the file has the key `of`, the runs are those of another experiment, with that name.
    """
    if "of" in content:
        return replace(experiment(content["of"]), paper=content["paper"])
    declared: JsonObject = _with_tuples(content)
    if "training" in content:
        methods_by_name = methods()
        declared["methods"] = tuple(methods_by_name[method_name] for method_name in content["methods"])
        declared["training"] = TrainingSettings(**_with_tuples(content["training"]))
        declared["grid"] = _with_tuples(content.get("grid", {}))
    return Experiment(name, **declared)


def _with_tuples(values: JsonObject) -> JsonObject:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
