"""`CountRegressor`: the default model of `ddpn fit` with scikit-learn's interface."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddpn.calibration.calibrate import calibrate
from ddpn.estimators.network_regressor import Checked, NetworkRegressor
from ddpn.members import MEMBERS
from ddpn.members.candidates import chosen_candidates, default_candidates
from ddpn.members.network_options import SMALL_ROWS
from ddpn.members.portfolio import Portfolio
from ddpn.predictor import Predictor
from ddpn.runtime.deadlines import Clock
from ddpn.runtime.durations import parse_duration
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import check_keys
from ddpn.sample import Sample

#: The share of a time budget that fits may take; the rest is for calibration.
_FITS = 0.75
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

    def _fit(self, checked: Checked) -> None:
        seconds = None if self.time_budget is None else parse_duration(self.time_budget, "time_budget")
        whole = Clock(seconds)
        clock = whole.part(_FITS * whole.left) if self.calibrates else whole
        train, validation = checked.sample, checked.validation
        if validation is None and len(train) > SMALL_ROWS:
            train, validation = self._split(train, "auto", checked.random.randint(2**31 - 1))
        if validation is None:
            _check_divisible(train)
        seed = int(checked.random.randint(2**31 - 1))
        built = checked.head, checked.options, checked.others
        candidates = default_candidates(*built, train, validation is None, checked.run)
        if self.members != "auto":
            candidates = chosen_candidates(candidates, self.members, checked.head, checked.run)
        portfolio = Portfolio(candidates, clock, self.on_step, self._elsewhere()).fit(train, validation, seed)
        parts = portfolio.members, portfolio.weights, checked.needs_exposure, portfolio.seconds, checked.counts
        self._set_fitted(checked.reader, Predictor(*parts))
        self._interrupted, self.folds_, self.left_out_ = portfolio.interrupted, portfolio.folds, portfolio.left_out
        for name, why in portfolio.left_out.items():
            label = MEMBERS[name].label or name
            warnings.warn(f"The mixture is fitted without {label}: {why}.", UserWarning, stacklevel=3)
        if self.calibrates:
            calibrate(self.predictor_, portfolio.folds, seed, clock=whole)
            self.folds_ = None


def _check_divisible(train: Sample) -> None:
    """Raise an `InputError` where no row can be left out: equal rows count as one, as do rows of one group."""
    if train.group is None and len(train) < 2:
        raise InputError("X and y must have at least two different rows, to leave one out, got one sample.")
    if train.group is not None and len(np.unique(train.group)) < 2:
        raise InputError("groups must have at least two different values, to leave one out, got one.")
