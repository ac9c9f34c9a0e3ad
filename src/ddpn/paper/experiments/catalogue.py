"""Read the paper's experiments from TOML files in the folder `catalogue`. Imports no torch.

An experiment has methods and a grid of settings. A run trains one method at one point of the grid. The folder
`reference` has the numbers of the paper.
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
    """A method of an experiment: a likelihood, and how its parameters depend on the inputs.

    - `label` is the name of the method in tables.
    - `head` is the name of the likelihood in `ddpn.networks.heads`, and `options` are its arguments.
    - `hidden` are the widths of the hidden layers; None means those of the experiment. With `hidden=()`, the method is
      a GLM.
    - `exact` is True for a GLM that is fitted by maximum likelihood. Otherwise a GLM is trained like a network, as in
      the paper.
    - `dispersion` is "constant" if all rows have the same dispersion.
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
    """The settings with which networks are trained; most are those of `ddpn.networks.training.TrainingConfig`.

    - The length of the training is set by `epochs`, or by `steps` if the data set is smaller than the paper's.
    - `accumulate` is the number of parts into which a batch is divided to compute its gradient.
    - `at_once` is the number of networks that are trained together; None trains all together.
    - `initial_gamma` is the initial value of gamma (Appendix A.4).
    - `score` selects the best epoch: each network keeps the weights of the epoch with the lowest validation score. In
      the paper, the score is the loss.
    - `snapshots` are additional weights to save. A number means the weights at the end of that epoch. "crps" or "nll"
      means the weights of the epoch in which this validation score of the network is lowest.

    As in the paper, the optimiser is AdamW with a cosine schedule, without weight averaging or gradient clipping. Only
    `n_networks` and `seed`, which the command line sets, are validated here.
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

    def compute_epochs(self, rows: int) -> int:
        """Return `epochs` if it is set, else the number of epochs in which `rows` training rows give `steps` steps."""
        per_epoch = max(1, rows // min(self.batch_size, rows))
        return self.epochs or max(1, round((self.steps or 0) / per_epoch))


#: The names of all settings of a training.
TRAINING = [f.name for f in fields(TrainingSettings)]
_UNTRAINED = TrainingSettings(batch_size=1, lr=1.0, weight_decay=0.0, epochs=1, n_networks=1)


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper, as declared in one file of the catalogue.

    - `paper` names the tables and figures of the paper that the experiment repeats. `minutes` is its run time.
    - `data` or `simulation` is the source of the rows. `ood` names a data set of out-of-distribution rows, for which
      predictions are made as well.
    - The methods use `backbone`, or an MLP if it is None, and the settings `training`. `grid` has the settings that
      vary between runs, with their values.
    - `reference` says which of the paper's numbers to show in tables, and `figures` are the names of functions that
      draw figures. An experiment without methods has only figures.
    - `in_all` is False for experiments that need data or machines that few people have. `ddpn reproduce all` skips
      them.
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
        """Return a copy of the experiment with some training settings changed."""
        return replace(self, training=replace(self.training, **changes))

    def quick(self) -> Self:
        """Return a copy with a tenth of the training, and with a new name so that it does not overwrite a full run."""
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
    """One training (or exact fit) of one method, at one point of the experiment's grid.

    `point` maps the names of the varying settings to their values.
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
        """The likelihood, with the options of the method and the settings of this point of the grid."""
        options = {key: value for key, value in self.point.items() if key not in TRAINING}
        return make_head(self.method.head, **{**self.method.options, **options})

    @property
    def training(self) -> TrainingSettings:
        """The training settings of the experiment, except for those that the method or this point of the grid sets."""
        changes = {key: value for key, value in self.point.items() if key in TRAINING}
        if self.method.hidden is not None:
            changes["hidden"] = self.method.hidden
        return replace(self.experiment.training, **changes)

    @property
    def projection_inputs(self) -> list[str]:
        """For each raw output of the network, the kind of inputs from which the output layer computes it.

        The kinds are "features", "detached" and "constant", which `ddpn.networks.model.Projection` explains.
        """
        head = self.head
        constant = head.dispersion_outputs if self.method.dispersion == "constant" else ()
        return ["constant" if number in constant else what for number, what in enumerate(head.projection_inputs)]

    def as_dict(self) -> JsonObject:
        """Return all settings on which the results depend, ready for JSON. If they change, the run is repeated."""
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


def list_names() -> list[str]:
    """Return the names of all experiments."""
    paths = [Path(entry.name) for entry in _CATALOGUE.iterdir()]
    return sorted(path.stem for path in paths if path.suffix == ".toml" and path.stem != _METHODS)


def build_listing() -> Table:
    """Build a table of all experiments: what each shows, which data it needs, and how long it takes."""
    table = Table(title="ddpn reproduce NAME")
    for heading in ("experiment", "what it shows", "in the paper", "needs", "network"):
        table.add_column(heading, no_wrap=heading == "experiment", overflow="fold")
    table.add_column("minutes", justify="right")
    for name in list_names():
        described = read_experiment(name)
        needs = f"data set {described.data['name']}" if described.data else "nothing"
        if described.simulation:
            needs = f"simulated ({described.simulation['name']})"
        # A file that shows the runs of another experiment has a separate title.
        table.add_row(
            name,
            read_toml(name)["title"],
            described.paper,
            needs,
            _describe_network(described),
            f"{described.minutes:g}",
        )
    table.caption = "Minutes on two CPU cores; 600 or more are estimates for experiments that need a GPU."
    return table


def _describe_network(described: Experiment) -> str:
    """Describe the network of an experiment, such as "MLP 128-128-128-64"; return "" if it has no methods."""
    if not described.methods:
        return ""
    backbone = described.backbone or {}
    head = "-".join(map(str, described.training.hidden))
    pretrained = backbone.get("pretrained", "")
    return f"{' '.join(filter(None, [backbone.get('name', ''), pretrained]))} MLP {head}".strip()


def select_experiments(
    chosen: Sequence[str],
    *,
    only: Sequence[str] = (),
    quick: bool = False,
    **training: Any,
) -> list[Experiment]:
    """Read experiments by name, without duplicates, and change their training settings to `training`.

    The name "all" stands for every experiment with `in_all=True`. `quick` shortens the training. `only` lists methods
    to run; a method that no selected experiment has raises a `ConfigError`.
    """
    valid_names = [*list_names(), EVERY]
    if not chosen:
        raise ConfigError(
            f"NAME must be one or more of {', '.join(valid_names)}. The list of experiments describes them."
        )
    for name in chosen:
        check_choice("NAME", name, valid_names)
    all_experiments = (
        [candidate for candidate in map(read_experiment, list_names()) if candidate.in_all] if EVERY in chosen else []
    )
    # Keyed by the experiment's own name, because several files may show the runs of one experiment.
    selected = {
        candidate.name: candidate
        for candidate in [*all_experiments, *(read_experiment(name) for name in chosen if name != EVERY)]
    }
    for method in only:
        check_choice(
            "method in `only`",
            method,
            dict.fromkeys(m.name for candidate in selected.values() for m in candidate.methods),
        )
    shorter = [candidate.quick() if quick else candidate for candidate in selected.values()]
    return [candidate.with_training(**training) for candidate in shorter]


def read_toml(name: str) -> JsonObject:
    """Read the TOML file of an experiment."""
    return tomllib.loads((_CATALOGUE / f"{name}.toml").read_text(encoding="utf-8"))


def read_reference(table: str, dataset: str | None = None) -> dict[tuple[str, str, str], float]:
    """Read one of the paper's tables from the folder `reference`, as a dict from (kind, method, metric) to a number.

    The kind is "single" for the mean over single networks, "ensemble" for an ensemble, or "" if the table does not
    distinguish them. If the table has several data sets, `dataset` selects one.
    """
    rows = list(csv.DictReader((_REFERENCE / f"{table}.csv").read_text(encoding="utf-8").splitlines()))
    selected = [row for row in rows if "dataset" not in row or row["dataset"] == dataset]
    return {(row.get("kind", ""), row["method"], row["metric"]): float(row["mean"]) for row in selected}


def read_methods() -> dict[str, Method]:
    """Read all methods, by name."""
    return {name: Method(name, **_with_tuples(row)) for name, row in read_toml(_METHODS).items()}


def read_experiment(name: str) -> Experiment:
    """Read an experiment by name."""
    return parse_experiment(check_choice("experiment", name, list_names()), read_toml(name))


def parse_experiment(name: str, content: JsonObject) -> Experiment:
    """Convert the content of a TOML file to the experiment `name`.

    If the content has the key `of`, it is the name of another experiment. That experiment is returned, but with the
    `paper` of this content: the same runs are shown as other tables and figures of the paper.
    """
    if "of" in content:
        return replace(read_experiment(content["of"]), paper=content["paper"])
    declared: JsonObject = _with_tuples(content)
    if "training" in content:
        methods_by_name = read_methods()
        declared["methods"] = tuple(methods_by_name[method_name] for method_name in content["methods"])
        declared["training"] = TrainingSettings(**_with_tuples(content["training"]))
        declared["grid"] = _with_tuples(content.get("grid", {}))
    return Experiment(name, **declared)


def _with_tuples(values: JsonObject) -> JsonObject:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
