"""`CountRegressor`, the default model of `ddpn fit`, and `DDPNRegressor`, an ensemble of networks as in the paper."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddpn.calibration.calibrate import calibrate
from ddpn.calibration.ood import FeatureProfile
from ddpn.estimators.network_regressor import NetworkRegressor
from ddpn.members import MEMBERS
from ddpn.members.folds import Folds
from ddpn.members.member import Task
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Networks
from ddpn.members.portfolio import Candidate, chosen_candidates, default_candidates
from ddpn.runtime.deadlines import Clock, parse_duration
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_integer, check_keys, is_number
from ddpn.sample import Sample
from ddpn.tables.count_range import CountRange
from ddpn.tables.encoding import FeatureEncoder
from ddpn.tables.splits import FOLDS, held_out_rows

#: The share of a time budget that fits may take; the rest is for calibration.
_FITS = 0.75
#: With fewer rows none are held out to choose epochs: they are needed for fitting, and would score too noisily.
_MIN_SPLIT_ROWS = 200
#: Networks of each kind, where members are fitted once.
_NETWORKS = 5


@dataclass(kw_only=True, eq=False, repr=False)
class CountRegressor(NetworkRegressor):
    """Predict counts with honest uncertainty: what `ddpn fit` does, with scikit-learn's interface.

    Boosted trees, a GLM, networks and, where these still improve, networks that are trained longer predict a whole
    distribution each; a weighted mixture of them is the model. Weights are chosen and intervals calibrated with rows
    that members were not fitted to: by cross-fitting up to 5,000 rows, with a tenth of the rows beyond
    (`ddpn.members.folds` says which rows choose what).

    Parameters
    ----------
    likelihood : str or sequence of str
        "mixed", a mixture of two Double Poissons and a Negative Binomial with predicted weights, or another name in
        `networks.heads.HEADS`: "double_poisson" (the paper's), "poisson", "negative_binomial", "gaussian", ... Several
        names make a mixture of these families.
    head_options : dict, optional
        Options of the likelihood, such as `components=3` for a mixture of three of one family; those of
        "double_poisson" are `beta`, `objective`, `gamma` and `initial_gamma`.
    members : "auto" or sequence of str
        What is fitted: names in `ddpn.members.MEMBERS`, such as ["trees", "glm"]. "auto" is all of the above.
    hidden : sequence of int or "auto"
        Widths of the hidden layers; () for a linear model. "auto" is (64, 64) up to 5,000 rows and (128, 128, 128, 64)
        beyond.
    numeric : {"auto", "standard", "piecewise", "steps"}
        Encoding of numbers, see `FeatureEncoder`; "auto" is "piecewise" up to 5,000 rows and "steps" beyond.
    epochs : int or "auto"
        Passes over the training rows; "auto" follows the number of rows.
    mix_with : sequence of str
        Further kinds of members to fit, names in `ddpn.members.MEMBERS`.
    time_budget : float or str, optional
        The time that `fit` may take: seconds, or text such as "60s" or "10m". Default: no limit.
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
    left_out_ : dict
        Members that are not part of the model, and why.
    interrupted_ : bool
        Whether Ctrl-C ended the training early; the best networks so far are kept.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-2, 2, 200).reshape(-1, 1)
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + X[:, 0]))
    >>> model = CountRegressor(members=["glm"], random_state=0).fit(X, y)
    >>> model.predict_interval([[-1.0], [1.0]], coverage=0.9).tolist()
    [[0, 3], [4, 12]]
    """

    members: str | Sequence[str] = "auto"
    time_budget: float | str | None = None

    def _networks_per_kind(self) -> int:
        if isinstance(self.members, str):
            if self.members != "auto":
                raise ConfigError(f'members must be "auto" or a list of names, got {self.members!r}.')
        elif not isinstance(self.members, Sequence):
            what = 'members must be "auto" or a list of names such as ["trees", "glm"]'
            raise ConfigError(f"{what}, got {self.members!r}. For an ensemble of so many networks use DDPNRegressor.")
        else:
            check_keys(self.members, MEMBERS, "members")
        return _NETWORKS

    def _fit_and_finish(self, train: Sample, validation: Sample | None, counts: CountRange) -> None:
        seconds = None if self.time_budget is None else parse_duration(self.time_budget, "time_budget")
        clock = Clock(seconds)
        fitted = self.fit_members(train, validation, counts, clock.part(_FITS * clock.left))
        calibrate(self.predictor_, fitted.folds, fitted.seed, clock=clock)

    def _planned(
        self, task: Task, train: Sample, validation: Sample | None, random: np.random.RandomState
    ) -> tuple[Folds, list[Candidate], int]:
        seed = int(random.randint(2**31 - 1))
        folds, task = Folds.of(train, validation, seed), replace(task, is_rough=True)
        if folds.are_crossed:
            # Two networks leave out each row, so that what all of them gain by being mixed is known.
            rows = max(1, len(folds.train) * (FOLDS - 1) // FOLDS)
            task = replace(task, rows=rows, options=replace(task.options, members=2))
        if self.members == "auto":
            return folds, default_candidates(task, self.mix_with), seed
        return folds, chosen_candidates(task, self.members), seed


@dataclass(kw_only=True, eq=False, repr=False)
class DDPNRegressor(NetworkRegressor):
    """Deep Double Poisson Networks as in the paper: an ensemble of networks, each predicting a whole distribution.

    `CountRegressor` mixes such networks with boosted trees and a GLM, and calibrates its intervals.

    Parameters
    ----------
    members : int
        Networks in the ensemble, which are trained together and mixed.
    validation : float, "auto" or None
        Share of rows held out to choose each network's best epoch, unless `fit` is given validation rows; "auto" is a
        tenth from 200 rows on.
    mix_with : sequence of str
        Further kinds of members (names in `ddpn.members.MEMBERS`, such as "glm") whose weights in the mixture are
        chosen on validation rows. Without validation rows they are left out.
    likelihood, head_options, hidden, numeric, epochs, training_options
        The networks, as for `CountRegressor`.
    lower, upper, censored_above, fractional
        The counts, as for `CountRegressor`.
    checkpoint, random_state, device, verbose, n_jobs
        How the fit runs, as for `CountRegressor`.

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

    members: int = 5
    validation: float | str | None = "auto"

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


def held_out(sample: Sample, share: float | str | None, seed: int) -> np.ndarray:
    """Mask of the rows that are kept for validation: by default a tenth, where there are enough rows."""
    if share == "auto":
        share = 0.1 if len(sample) >= _MIN_SPLIT_ROWS else 0.0
    groups = len(sample) if sample.group is None else len(np.unique(sample.group))
    if not share or groups < 2:
        return np.zeros(len(sample), dtype=bool)
    return held_out_rows(len(sample), float(share), seed, sample.group)
