"""`CountRegressor`, the default model of `ddpn fit`: networks, boosted trees and a GLM, mixed and calibrated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddpn.analysis.leaderboard import Leaderboard, out_of_fold_leaderboard
from ddpn.calibration.calibrate import CalibrationOptions
from ddpn.estimators.network_regressor import NetworkRegressor
from ddpn.members import MEMBERS
from ddpn.members.folds import Folds
from ddpn.members.member import Task
from ddpn.members.portfolio import make_chosen_specs, make_default_specs
from ddpn.pipeline import PLAIN_STEPS, FitPlan, PipelineOptions
from ddpn.rows.count_range import CountRange
from ddpn.rows.count_rows import CountRows
from ddpn.rows.splits import FOLDS
from ddpn.runtime.deadlines import parse_duration
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.time_plan import Schedule, make_budget_clock
from ddpn.runtime.validation import check_keys
from ddpn.storage.contents import JsonObject

#: The number of networks of each kind if members are fitted once and not cross-fitted.
_N_NETWORKS = 5


@dataclass(kw_only=True, eq=False, repr=False)
class CountRegressor(NetworkRegressor):
    """A regressor for counts with honest uncertainty: the model of `ddpn fit`, with scikit-learn's interface.

    The model is a weighted mixture of boosted trees, a GLM, networks and, if longer training still helps, networks that
    are trained longer. Each of these members predicts a whole distribution. Weights are chosen and intervals calibrated
    on held-out rows. Up to 5,000 rows are cross-fitted, so that every row is held out once; in larger tables, a tenth
    of the rows is held out (see `ddpn.members.folds`).

    Parameters
    ----------
    likelihood : str or sequence of str
        "mixed", a mixture of two Double Poissons and a Negative Binomial with predicted weights, or another name in
        `networks.heads.HEADS`: "double_poisson" (the paper's), "poisson", "negative_binomial", "gaussian", ... Several
        names make a mixture of these families.
    head_options : dict, optional
        Options of the likelihood, such as `components=3` for a mixture of three distributions of one family. The
        options of "double_poisson" are `beta` (the exponent of the paper's β-DDPN) and `objective`, "exact" or "paper"
        (see `networks.heads.DoublePoissonHead`).
    members : "auto" or sequence of str
        The members to fit: names in `ddpn.members.MEMBERS`, such as ["trees", "glm"]. "auto" fits boosted trees, a GLM,
        networks and, if longer training still helps, networks that are trained longer.
    hidden : sequence of int or "auto"
        Widths of the hidden layers; () for a linear model. "auto" is (64, 64) up to 5,000 rows and (128, 128, 128, 64)
        beyond.
    numeric : {"auto", "standard", "piecewise", "steps"}
        Encoding of numeric columns (see `FeatureEncoder`); "auto" is "piecewise" up to 5,000 rows and "steps" beyond.
    epochs : int or "auto"
        Passes over the training rows; "auto" depends on the number of rows.
    mix_with : sequence of str
        Members to fit in addition to `members`: names in `ddpn.members.MEMBERS`.
    time_budget : float or str, optional
        The time that `fit` may take: seconds, or text such as "60s" or "10m". Default: no limit.
    monotone : dict, optional
        Numeric columns with which the mean must not decrease (1) or must not increase (-1), such as {"age": 1}; only
        with `members=["trees"]` and without bounds. Columns without names are called x0, x1, ...
    training_options : dict, optional
        Options of the networks and their training: `lr`, `batch_size`, `weight_decay`, `warmup`, `schedule`, `clip`,
        `ema`, `score`, `start`, `patience`, `precision`, `activation`, `bins`, `categorical` (see `NetworkOptions`).
    lower, upper : int, optional
        The smallest and the largest possible count, such as 1 and 5 for stars. Other counts have probability 0. An
        upper bound per row is an argument of `fit` and of the predictions.
    censored_above : int, optional
        The recording limit: larger counts are recorded as this number ("10 or more"). The likelihood treats recorded
        counts of this size as right-censored.
    fractional : {"error", "round"}
        Whether counts that are not integers raise an error or are rounded.
    checkpoint : path, optional
        A file in which a fit saves its progress. If it is interrupted, a fit with the same integer `random_state`
        continues from there. With `n_jobs`, each finished fit is saved in a folder next to this file instead; the name
        of the folder ends with .jobs.
    random_state : int, RandomState or None
        Seed of the split, the weights and the batches; None uses numpy's global random state, so that fits differ.
    device : str
        Device of the networks: "auto", "cpu" or "cuda".
    verbose : bool, optional
        Show progress: a line with the time of each fitted member. Default: in notebooks only.
    n_jobs : int or RayCluster, optional
        How many members are fitted at once, each in a process of one thread; -1 is one per core. A
        `ddpn.runtime.cluster.RayCluster` fits members on its nodes. Default: members are fitted one after another in
        this process.

    Attributes
    ----------
    predictor_ : Predictor
        The fitted members with their weights and calibration.
    feature_kinds_ : list of Kind
        The type of each column of `feature_names_in_`: "number", "boolean", "category" or "category of numbers". A
        column of dates has been replaced by several columns.
    history_ : History
        Losses of the networks by epoch.
    left_out_ : dict
        Planned members that are not part of the model, with the reason for each. `fit` warns about members that could
        not be fitted, for lack of time or because they do not apply to the table.
    leaks_ : tuple of str
        Warnings of `fit` about target leaks. If there are any, every verdict on the model is "unusable"
        (`Verdict.level`), in `leaderboard`, `verdict` and `report`.
    interrupted_ : bool
        True if Ctrl-C ended the training early; the best networks so far are kept.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-2, 2, 200).reshape(-1, 1)
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + X[:, 0]))
    >>> model = CountRegressor(members=["glm"], random_state=0).fit(X, y)
    >>> model.predict_interval([[-1.0], [1.0]], coverage=0.9).tolist()
    [[0, 3], [3, 12]]
    """

    members: str | Sequence[str] = "auto"
    time_budget: float | str | None = None
    monotone: Mapping[str, int] | None = None

    def _networks_per_member(self) -> int:
        if isinstance(self.members, str):
            if self.members != "auto":
                raise ConfigError(f'members must be "auto" or a list of names, got {self.members!r}.')
        elif not isinstance(self.members, Sequence):
            what = 'members must be "auto" or a list of names such as ["trees", "glm"]'
            raise ConfigError(f"{what}, got {self.members!r}. For an ensemble, use DDPNRegressor(n_networks=5).")
        else:
            check_keys(self.members, MEMBERS, "members")
        if self.monotone is not None and (list(self.members) != ["trees"] or self.mix_with):
            must = 'be None unless members is ["trees"]: other members do not follow it'
            raise ConfigError(argument="monotone", must=must, got=repr(self.monotone))
        return _N_NETWORKS

    def _make_schedule(self) -> Schedule:
        seconds = None if self.time_budget is None else parse_duration(self.time_budget, "time_budget")
        return Schedule(make_budget_clock(seconds), steps=PLAIN_STEPS)

    def _pipeline_options(self, counts: CountRange) -> PipelineOptions:
        if self.monotone is not None and counts.is_bounded:
            # With bounds, the mean also depends on the dispersion.
            must = "be None where counts have bounds: their mean might fall"
            raise ConfigError(argument="monotone", must=must, got=repr(self.monotone))
        # After a recalibration, the mean would also depend on the dispersion, and might not be monotone.
        return PipelineOptions(calibration=CalibrationOptions(recalibrate=self.monotone is None))

    def _out_of_fold_leaderboard(self) -> Leaderboard:
        _ = self._fitted  # raises an error if the model is not fitted
        held_out = getattr(self, "_held_out", None)
        if held_out is None:
            raise InputError(
                "Give a test set as X and y. Out-of-fold scores need a model that was cross-fitted in this process: "
                "one of up to 5,000 rows, without validation rows, that was not loaded or copied."
            )
        return replace(out_of_fold_leaderboard(self.predictor_, held_out, self.leaks_), library=self._library)

    def __getstate__(self) -> JsonObject:
        """Return the state to pickle or copy, without the training rows, which would make it large.

        A pickled or copied model therefore has no out-of-fold scores.
        """
        return {name: value for name, value in super().__getstate__().items() if name != "_held_out"}

    def _plan_fit(
        self, task: Task, train: CountRows, validation: CountRows | None, random: np.random.RandomState
    ) -> FitPlan:
        seed = int(random.randint(2**31 - 1))
        folds, task = Folds.from_rows(train, validation, seed), replace(task, is_rough=True, monotone=self.monotone)
        if folds.are_crossed:
            # Each row is left out by two networks, so that the gain of mixing networks can be estimated.
            rows = max(1, len(folds.train) * (FOLDS - 1) // FOLDS)
            task = replace(task, rows=rows, options=replace(task.options, n_networks=2))
        if self.members == "auto":
            return FitPlan(folds, make_default_specs(task, self.mix_with), seed)
        return FitPlan(folds, make_chosen_specs(task, list(dict.fromkeys([*self.members, *self.mix_with]))), seed)
