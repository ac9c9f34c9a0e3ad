"""`DDPNRegressor`: an ensemble of networks as in the paper, with scikit-learn's interface."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from ddpn.calibration.profile import FeatureProfile
from ddpn.estimators.fitting import held_out
from ddpn.estimators.network_regressor import NetworkRegressor
from ddpn.members.folds import Folds
from ddpn.members.member import Task
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Networks
from ddpn.members.portfolio import Candidate, chosen_candidates
from ddpn.networks.heads import DEFAULT_LIKELIHOOD
from ddpn.networks.model import CountModel
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.jobs import Where
from ddpn.runtime.validation import check_integer, is_number
from ddpn.sample import Sample
from ddpn.tables.count_range import CountRange
from ddpn.tables.encoding import FeatureEncoder


class DDPNRegressor(NetworkRegressor):
    """Deep Double Poisson Networks as in the paper: an ensemble of networks, each predicting a whole distribution.

    `CountRegressor` mixes such networks with boosted trees and a GLM, and calibrates its intervals.

    Parameters
    ----------
    likelihood : str or sequence of str
        "mixed", a mixture of two Double Poissons and a Negative Binomial with predicted weights, or another name in
        `networks.heads.HEADS`: "double_poisson" (the paper's), "poisson", "negative_binomial", "gaussian", ... Several
        names make a mixture of these families.
    head_options : dict, optional
        Options of the likelihood, such as `components=3` for a mixture of three of one family; those of
        "double_poisson" are `beta`, `objective`, `gamma` and `initial_gamma`.
    members : int
        Networks in the ensemble, which are trained together and mixed.
    hidden : sequence of int or "auto"
        Widths of the hidden layers; () for a linear model. "auto" is (64, 64) up to 5,000 rows and (128, 128, 128, 64)
        beyond.
    numeric : {"auto", "standard", "piecewise", "steps"}
        Encoding of numbers, see `FeatureEncoder`; "auto" is "piecewise" up to 5,000 rows and "steps" beyond.
    epochs : int or "auto"
        Passes over the training rows; "auto" follows the number of rows.
    validation : float, "auto" or None
        Share of rows held out to choose each network's best epoch, unless `fit` is given validation rows; "auto" is a
        tenth from 200 rows on.
    mix_with : sequence of str
        Further kinds of members (names in `ddpn.members.MEMBERS`, such as "glm") whose weights in the mixture are
        chosen on validation rows. Without validation rows they are left out.
    training_options : dict, optional
        How networks are built and trained: `lr`, `batch_size`, `weight_decay`, `warmup`, `schedule`, `clip`, `ema`,
        `score`, `patience`, `precision`, `activation`, `bins`, `categorical`, `start` (see `NetworkOptions`).
    lower, upper : int, optional
        The smallest and the largest possible count, such as 1 and 5 for stars: no probability outside. An upper bound
        per row is an argument of `fit` and of the predictions.
    censored_above : int, optional
        Counts of this size or more are recorded as this one ("10 or more"), and enter the likelihood as such.
    fractional : {"error", "round"}
        What to do where y is not an integer.
    checkpoint : path, optional
        A file from which an interrupted fit with the same integer `random_state` continues. With `n_jobs`, the
        finished fits are in a folder beside it, whose name ends with .jobs.
    random_state : int, RandomState or None
        Seed of the split, the weights and the batches; None uses numpy's global random state, so that fits differ.
    device : str
        "auto", "cpu" or "cuda".
    verbose : bool
        Show progress.
    n_jobs : int or RayCluster, optional
        How many members are fitted at once, each in a process of one thread; -1 is one per core. A
        `ddpn.runtime.cluster.RayCluster` fits them on its nodes. Default: one after the other, in this process.

    Attributes
    ----------
    predictor_ : Predictor
        The fitted members with their weights and calibration.
    feature_kinds_ : list of str
        The kind of every column: "number", "flag" or "category".
    history_ : History
        How the training of the networks went.
    interrupted_ : bool
        Whether Ctrl-C ended the training early; the best networks so far are kept.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-2, 2, 200).reshape(-1, 1)
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + X[:, 0]))
    >>> model = DDPNRegressor(members=2, hidden=(16,), epochs=10, random_state=0).fit(X, y)
    >>> low, high = model.predict_interval([[0.0]], coverage=0.9).T
    >>> bool(low[0] <= model.predict([[0.0]])[0] <= high[0])
    True
    """

    def __init__(
        self,
        *,
        likelihood: str | Sequence[str] = DEFAULT_LIKELIHOOD,
        head_options: Mapping[str, Any] | None = None,
        members: int = 5,
        hidden: Sequence[int] | str = "auto",
        numeric: str = "auto",
        epochs: int | str = "auto",
        validation: float | str | None = "auto",
        mix_with: Sequence[str] = (),
        training_options: Mapping[str, Any] | None = None,
        lower: int = 0,
        upper: int | None = None,
        censored_above: int | None = None,
        fractional: str = "error",
        checkpoint: str | PathLike[str] | None = None,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
        n_jobs: Where = None,
    ) -> None:
        self.likelihood = likelihood
        self.head_options = head_options
        self.members = members
        self.hidden = hidden
        self.numeric = numeric
        self.epochs = epochs
        self.validation = validation
        self.mix_with = mix_with
        self.training_options = training_options
        self.lower = lower
        self.upper = upper
        self.censored_above = censored_above
        self.fractional = fractional
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.n_jobs = n_jobs

    def _networks_per_kind(self) -> int:
        return check_integer("members", self.members, 1)

    def _fit_and_finish(self, train: Sample, validation: Sample | None, counts: CountRange) -> None:
        fitted_to = self.fit_members(train, validation, counts).folds.train
        self.predictor_.profile = FeatureProfile.fit(fitted_to.X, fitted_to.weight)

    def _planned(
        self, task: Task, train: Sample, validation: Sample | None, random: np.random.RandomState
    ) -> tuple[Folds, list[Candidate], int]:
        if validation is None:
            kept = held_out(train, self._validation_share(), random.randint(2**31 - 1))
            train, validation = (train.rows(~kept), train.rows(kept)) if kept.any() else (train, None)
        self.n_rows_ = len(train)
        seeds = tuple(random.randint(2**31 - 1, size=task.options.members).tolist())
        run = {name: getattr(task, name) for name in ("runtime", "checkpoint", "verbose", "stream")}
        given = task.head, task.options
        networks = Candidate("networks", lambda clock: Networks(*given, seeds=seeds, clock=clock, **run))
        # Weights are chosen by validation rows; options of the networks are theirs alone.
        apart = replace(task, options=NetworkOptions(), checkpoint=None)
        others = [] if validation is None else chosen_candidates(apart, self.mix_with)
        return Folds(train, validation), [networks, *others], seeds[0]

    def _validation_share(self) -> float | str | None:
        share = self.validation
        if share is None or share == "auto":
            return share
        if not is_number(share) or not 0.0 <= share < 1.0:
            raise ConfigError(f'validation must be "auto", None or a share in [0, 1), got {share!r}.')
        return share

    @property
    def encoder_(self) -> FeatureEncoder:
        """The encoder of the networks' inputs."""
        return self._networks.encoder

    @property
    def model_(self) -> CountModel:
        """The networks themselves."""
        return self._networks.model
