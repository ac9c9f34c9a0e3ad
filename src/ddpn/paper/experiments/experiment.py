"""An experiment of the paper: its methods, its training settings, and its runs. Imports no torch.

An experiment has methods and a grid of settings. A run trains one method at one point of the grid.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Self

from ddpn.networks.heads import HEADS, make_head
from ddpn.runtime.validation import check_integer, check_number, is_integer
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
    - `dispersion` is "constant" if all rows have the same dispersion, and "predicted" if it depends on the inputs.
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
    - `initial_gamma` is about the gamma (inverse dispersion of a Double Poisson) with which training starts: its log is
      the initial bias of log gamma (Appendix A.4). If it is None, this bias is drawn at random.
    - `score` selects the best epoch: each network keeps the weights of the epoch with the lowest validation score. In
      the paper, the score is the loss.
    - `snapshots` are additional weights to save. A number means the weights at the end of that epoch. "crps" or "nll"
      means the weights of the epoch in which this validation score of the network is lowest.

    `hidden` are the widths of the hidden layers. `batch_size`, `lr`, `weight_decay`, `warmup` and `precision` are as in
    `TrainingConfig`.

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

    - `name` is the name of the file and of the folder of results, and `title` is shown above tables.
    - `paper` names the tables and figures of the paper that the experiment repeats. `minutes` is its run time on
      two CPU cores.
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
        """Return a copy for a quick run: a tenth of the epochs or steps, and at most two networks per run.

        The copy has another name, so that its results do not overwrite those of a full run.
        """
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
    """A run of an experiment: the training of one method's networks, or the exact fit of a GLM.

    `point` is the point of the experiment's grid: a dict from the names of the settings that vary between runs to their
    values in this run.
    """

    experiment: Experiment
    method: Method
    point: JsonObject

    @property
    def name(self) -> str:
        """The name of the run's folder: the method and the varying settings, such as "ddpn-lr=0.001"."""
        return "-".join([self.method.name, *(f"{key}={value}" for key, value in self.point.items())])

    @property
    def head(self) -> "Head":
        """The head (likelihood), with the options of the method and the settings of this point of the grid."""
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
        """Return all settings on which the results depend, ready for JSON.

        They are stored with the results. If they differ from the stored ones later, the run is repeated.
        """
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
