"""`CountRegressor`, the default model of `ddpn fit`, and `DDPNRegressor`, the networks of the paper."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from ddpn.analysis.leaderboard import Leaderboard, out_of_fold_leaderboard
from ddpn.calibration.calibrate import CalibrationOptions
from ddpn.estimators.data_warnings import warn_about_table
from ddpn.estimators.estimator import CountEstimator, collect_json_options, make_named_head
from ddpn.members import MEMBERS, list_mixable_members
from ddpn.members.folds import Folds, JobOptions, get_fold_copies
from ddpn.members.member import MemberSpec, NotApplicableError, Task
from ddpn.members.network_options import (
    FULL_BATCH_ROWS,
    NetworkOptions,
    check_training_options,
    make_paper_options,
)
from ddpn.members.networks import Networks
from ddpn.members.portfolio import make_chosen_specs, make_default_specs
from ddpn.networks.heads import DEFAULT_LIKELIHOOD, Head
from ddpn.networks.training import History, RowStream, Runtime
from ddpn.pipeline import PLAIN_STEPS, TRAINING, FitPlan, FittedPipeline, PipelineOptions, fit_pipeline
from ddpn.rows.checks import TableLike
from ddpn.rows.count_range import CountRange
from ddpn.rows.count_rows import CountRows
from ddpn.rows.splits import FOLDS, HELD_OUT_SHARE, MIN_ROWS_TO_VALIDATE, SMALL_TABLE_ROWS, draw_held_out_rows
from ddpn.runtime.deadlines import parse_duration
from ddpn.runtime.errors import ConfigError, DataWarning, InputError, warn_user
from ddpn.runtime.frames import library_name
from ddpn.runtime.jobs import Where, runs_in_this_process
from ddpn.runtime.progress import is_notebook, show_steps
from ddpn.runtime.time_plan import Schedule, make_budget_clock
from ddpn.runtime.validation import check_choice, check_integer, check_keys, is_integer, is_number, refuse_old_names
from ddpn.storage.contents import JsonObject
from ddpn.storage.results import ResultStore
from ddpn.tables.columns import ColumnTable, Kind
from ddpn.tables.date_columns import DateColumns
from ddpn.tables.encoding import FeatureEncoder
from ddpn.tables.reading import read_table
from ddpn.tables.schema import Schema

if TYPE_CHECKING:
    from torch import nn

#: The number of networks of each kind if members are fitted once and not cross-fitted.
_N_NETWORKS = 5


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkRegressor(CountEstimator):
    """Base class of `CountRegressor` and `DDPNRegressor`, the estimators with networks."""

    likelihood: str | Sequence[str] = DEFAULT_LIKELIHOOD
    head_options: Mapping[str, object] | None = None
    hidden: Sequence[int] | str = "auto"
    numeric: str = "auto"
    epochs: int | str = "auto"
    mix_with: Sequence[str] = ()
    training_options: Mapping[str, object] | None = None
    lower: int = 0
    upper: int | None = None
    censored_above: int | None = None
    fractional: str = "error"
    checkpoint: str | PathLike[str] | None = None
    random_state: int | np.random.RandomState | None = None
    device: str = "auto"
    verbose: bool | None = None
    n_jobs: Where = None

    _not_saved = ("checkpoint", "verbose", "time_budget", "n_jobs")

    # Fitting -----------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        validation: CountRows | None = None,
        upper: ArrayLike | None = None,
        censored: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        **removed: object,
    ) -> Self:
        """Fit the model to a table and its counts.

        Parameters
        ----------
        X : array-like or data frame
            One row per count. Columns may hold numbers, text, booleans and missing values. Dates in a data frame, also
            as text, become day, month and weekday (and hour), in fit and in predictions.
        y : array-like
            The counts.
        sample_weight : array-like, optional
            How many times each row counts.
        exposure : array-like, optional
            The known scale of each row, such as days observed, area or number of customers. It multiplies the predicted
            location. Predictions need exposures as well.
        validation : CountRows, optional
            Validation rows to use instead of a share of the training rows: ``CountRows(X, y, weight=..., exposure=...,
            upper=..., censored=...)``, with the same fields as the training rows.
        upper : array-like, optional
            The largest possible count of each row (beds, seats). Predictions need upper bounds as well.
        censored : array-like of bool, optional
            True for rows whose count y means "y or more".
        groups : array-like, optional
            The group of each row, such as a person. Rows of a group are held out together, so that weights and
            intervals are right for new groups. `ddpn.group_similar_rows` groups rows with equal or nearly equal inputs.
        **removed
            Arguments of earlier versions, which raise an error.

        Returns
        -------
        self

        Warns
        -----
        DataWarning
            If a column seems to contain the target, if rows seem to belong together, if a column numbers the rows, or
            if a number seems to stand for an unknown value. `ddpn fit` makes the same checks.

        Notes
        -----
        If a fit is interrupted (KeyboardInterrupt) after at least one epoch, the best ensemble so far is kept. If a fit
        is interrupted earlier or fails, the estimator does not change.
        """
        _raise_for_removed(removed)
        schedule = self._make_schedule()
        head = self._make_head()
        dates, warn_about_cells = DateColumns.find(X), partial(warn_user, category=DataWarning)
        X = dates.read(X, warn_about_cells)
        train = CountRows.from_arguments(X, y, sample_weight, exposure, upper, censored, groups, self.fractional)
        train = train.replace(X=read_table(X, type(self)))
        counts = self._make_range(head, train)
        train = counts.apply(train)
        if validation is not None:
            if not isinstance(validation, CountRows):
                must, got = "be rows with counts", type(validation).__name__
                remedy = "Pass validation=CountRows(X_val, y_val)."
                raise InputError(argument="validation", must=must, got=got, remedy=remedy)
            validation = counts.apply(validation, "validation.y")
            if (train.exposure is None) != (validation.exposure is None):
                raise InputError("Training and validation rows must both have exposures, or neither.")
            validation = validation.replace(X=dates.read(validation.X, warn_about_cells))
        for sentence in (note for column in dates.columns for note in column.notes):
            warn_user(sentence, DataWarning)
        leaks = warn_about_table(train, dates, is_split=validation is not None, clock=schedule.clock)
        with show_steps(self._shows_progress) as begin_step:
            schedule = replace(schedule, on_step=begin_step)
            fitted = self.fit_rows(train, validation, counts, self._pipeline_options(counts), schedule)
        self._dates, self._library, self.leaks_ = dates, library_name(X), leaks
        for note in fitted.notes:
            warn_user(note)
        if fitted.missing:
            raise KeyboardInterrupt
        return self

    def _make_schedule(self) -> Schedule:
        """Return the steps and the time limit of a fit, and start the clock of the time limit, if there is one."""
        return Schedule(steps=PLAIN_STEPS)

    @property
    def _shows_progress(self) -> bool:
        return is_notebook() if self.verbose is None else bool(self.verbose)

    @abstractmethod
    def _pipeline_options(self, counts: CountRange) -> PipelineOptions:
        """Return the options of the steps of a fit, such as calibration.

        Raise a `ConfigError` if the model does not support the range of counts.
        """

    def fit_rows(
        self,
        train: CountRows,
        validation: CountRows | None,
        counts: CountRange,
        options: PipelineOptions,
        schedule: Schedule,
        stream: RowStream | None = None,
    ) -> FittedPipeline:
        """Fit the model to validated rows by `ddpn.pipeline.fit_pipeline`, and set its fitted attributes.

        If the table is too large for memory, `stream` reads all of its rows in several passes, and `train` is a sample
        of them. If the user presses Ctrl-C, the model is kept if it can be used, and the result names the steps that
        are missing.
        """
        head, network_options, runtime = self.build_options()
        counts.check_not_all_censored(train)
        head.check_targets(train.y, train.exposure, train.labels)
        train = train.replace(X=read_table(train.X, type(self)))
        schema = Schema.from_table(train.X)
        if validation is not None:
            validation = validation.replace(X=schema.parse(validation.X))
            head.check_targets(validation.y, validation.exposure, validation.labels)
        train = train.rows(train.has_weight)
        self.n_rows_, self.n_validation_rows_ = len(train), 0
        if len(train) <= FULL_BATCH_ROWS and train.group is None and _is_complete_array(train.X):
            train = train.merge_equal_rows(np.column_stack([column.values for column in train.X]))
        # Cluster nodes have their own devices and folders.
        is_local = runs_in_this_process(self.n_jobs)
        task = Task(
            head,
            len(train),
            stream=stream,
            options=network_options,
            runtime=runtime if is_local or self.device == "cpu" else None,
            checkpoint=self._checkpoint() if is_local else None,
            verbose=self._shows_progress and is_local,
        )
        random = check_random_state(self.random_state)
        plan = self._plan_fit(task, train, validation, random)
        jobs = None if is_local else self._job_options(schedule.on_step)
        fitted = fit_pipeline(plan, head, counts, options, schedule, jobs)
        if plan.folds.validation is not None:
            self.n_rows_, self.n_validation_rows_ = len(plan.folds.train), len(plan.folds.validation)
        self._store_fit(schema, fitted.predictor)
        self._interrupted, self.left_out_ = TRAINING in fitted.missing, fitted.left_out
        # With these, the leaderboard scores every row out of fold.
        self._held_out = fitted.held_out if fitted.folds.are_crossed else None
        return fitted

    @abstractmethod
    def _plan_fit(
        self, task: Task, train: CountRows, validation: CountRows | None, random: np.random.RandomState
    ) -> FitPlan:
        """Return the plan of a fit: the rows to hold out, the members of the mixture to fit, and the random seed."""

    def build_options(self) -> tuple[Head, NetworkOptions, Runtime]:
        """Validate the constructor arguments.

        Return the head of the likelihood (which turns raw outputs into distributions), the options of the networks, and
        the runtime (device and processes). Raise a `ConfigError` for the first invalid argument.
        """
        head = self._make_head()
        options = self._network_options()
        device = "auto" if self.device != "cpu" and not runs_in_this_process(self.n_jobs) else self.device
        runtime = Runtime(device)
        options.make_config(rows=1000, seeds=(0,))
        self._checkpoint()
        if isinstance(self.mix_with, str) or not isinstance(self.mix_with, Sequence):
            must = 'be a list of names such as ["glm"]'
            raise ConfigError(argument="mix_with", must=must, got=repr(self.mix_with))
        check_keys(self.mix_with, list_mixable_members(), "mix_with")
        if "glm" in self.mix_with and not options.hidden:
            must = 'not contain "glm" without hidden layers: the networks are a GLM already'
            raise ConfigError(argument="mix_with", must=must)
        try:
            for name in self.mix_with:
                MEMBERS[name].choose_options(Task(head))
        except NotApplicableError as error:
            raise ConfigError(f"contains a member that cannot be used: {error}", argument="mix_with") from None
        return head, options, runtime

    def _make_head(self) -> Head:
        """Return the head of the likelihood, which turns raw outputs of the networks into distributions."""
        return make_named_head(self.likelihood, self.head_options)

    def _network_options(self) -> NetworkOptions:
        """Return the options of the networks and of their training."""
        return NetworkOptions(**self._collect_network_options())

    def _collect_network_options(self) -> JsonObject:
        """Return the options of the networks that follow from constructor arguments, keyed by name."""
        options = {name: getattr(self, name) for name in ("hidden", "numeric", "epochs")}
        return {"n_networks": self._networks_per_member(), **options, **check_training_options(self.training_options)}

    @abstractmethod
    def _networks_per_member(self) -> int:
        """Return the number of networks in a member of the mixture. They are trained together."""

    def _checkpoint(self) -> Path | None:
        if self.checkpoint is not None and not is_integer(self.random_state):
            raise ConfigError(f"random_state must be an integer to use a checkpoint, got {self.random_state!r}.")
        return None if self.checkpoint is None else Path(self.checkpoint)

    def _job_options(self, on_step: Callable[[str], object]) -> JobOptions:
        """Return the options for fitting members of the mixture as separate jobs, in processes or on a cluster.

        They say where the jobs run and where results are kept. `on_step` is called with a line of text about each
        finished fit.
        """
        checkpoint = self._checkpoint()
        # Finished fits are saved in a folder next to the checkpoint.
        store = None if checkpoint is None else ResultStore(checkpoint.with_name(f"{checkpoint.name}.jobs"))
        about = collect_json_options(self, (*self._not_saved, "device"))
        return JobOptions(self.n_jobs, store, about, on_step)

    # What was fitted ---------------------------------------------------------------------------------------------

    @property
    def _all_networks(self) -> list[Networks]:
        """All members of the mixture that are networks. If they were cross-fitted, the copies for all folds."""
        return [
            networks
            for member in self._fitted.members.values()
            for networks in get_fold_copies(member)
            if type(networks) is Networks
        ]

    @property
    def _networks(self) -> Networks:
        if not self._all_networks:
            raise AttributeError(f"This model has no networks. Its members are {', '.join(self._fitted.members)}.")
        return self._all_networks[0]

    @property
    def history_(self) -> History:
        """Training history of the networks: losses and scores by epoch."""
        _ = self._networks  # raises an error if there are no networks
        return History.from_parts([networks.history for networks in self._all_networks])

    @property
    def interrupted_(self) -> bool:
        """True if Ctrl-C ended the fit early."""
        return bool(getattr(self, "_interrupted", False)) or any(m.interrupted for m in self._fitted.members.values())

    @property
    def head_(self) -> Head:
        """The head of the networks. It turns their raw outputs into distributions of the likelihood."""
        return self._all_networks[0].head if self._all_networks else self._make_head()

    @property
    def numeric_(self) -> str:
        """The encoding of numeric columns that the networks use.

        It is the argument `numeric`, or the encoding that "auto" has chosen.
        """
        return self._networks.encoder.numeric

    def _extra_state(self) -> tuple[dict[str, bytes], JsonObject]:
        extra = {"rows": self.n_rows_, "validation_rows": self.n_validation_rows_, "interrupted": self.interrupted_}
        return {}, extra

    def _restore_extra(self, files: dict[str, bytes], extra: JsonObject) -> None:
        self.n_rows_, self.n_validation_rows_ = extra["rows"], extra.get("validation_rows", 0)
        self._interrupted = extra.get("interrupted", False)


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
        options of "double_poisson" are `beta` and `objective`.
    members : "auto" or sequence of str
        The members to fit: names in `ddpn.members.MEMBERS`, such as ["trees", "glm"]. "auto" fits all members that are
        named above.
    hidden : sequence of int or "auto"
        Widths of the hidden layers; () for a linear model. "auto" is (64, 64) up to 5,000 rows and (128, 128, 128, 64)
        beyond.
    numeric : {"auto", "standard", "piecewise", "steps"}
        Encoding of numeric columns (see `FeatureEncoder`); "auto" is "piecewise" up to 5,000 rows and "steps" beyond.
    epochs : int or "auto"
        Passes over the training rows; "auto" depends on the number of rows.
    mix_with : sequence of str
        Further members to fit: names in `ddpn.members.MEMBERS`.
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
        Warnings of `fit` about target leaks. They make every verdict "unusable".
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


@refuse_old_names(members="n_networks")
@dataclass(kw_only=True, eq=False, repr=False)
class DDPNRegressor(NetworkRegressor):
    """Deep Double Poisson Networks, the model of the paper: a mixture of five networks.

    Each network has layers of 128, 128, 128 and 64 units and predicts mu and gamma of one Double Poisson per row. It is
    trained on the paper's objective (Eq. 2) with AdamW and a cosine schedule, from random weights, and keeps the
    weights of the epoch with the lowest validation loss. Batch size, learning rate, weight decay and the number of
    steps are those of the paper's simulations up to 5,000 rows (32, 1e-3, 1e-5, 5,000 steps), and in larger tables
    those of its length-of-stay data (128, 1e-4, 1e-4, 9,375 steps). Numbers are standardised. For the paper's other
    methods, choose another likelihood; the documentation of the estimators has a table of them.

    `CountRegressor` usually predicts better: it mixes other networks with boosted trees and a GLM, and calibrates its
    intervals.

    Parameters
    ----------
    n_networks : int
        The number of networks in the mixture. They are trained together.
    preset : {"paper", "default"}
        The defaults of all other settings. "paper" uses the settings above. With "default", networks are trained as in
        `CountRegressor`, and the objective of a Double Poisson is its exact likelihood.
    validation : float, "auto" or None
        Share of rows held out to choose each network's best epoch, unless `fit` is given validation rows; "auto" is a
        tenth from 200 rows on.
    mix_with : sequence of str
        Further models to add to the mixture: names in `ddpn.members.MEMBERS`, such as "glm". Their weights in the
        mixture are chosen on validation rows. Without validation rows, they are left out.
    backbone : str or callable
        "mlp" for layers of widths `hidden`, or your own network: a function ``backbone(n_in=..., n_networks=...)``, or
        its name in `ddpn.networks.backbones.BACKBONES`. A model can be saved only if the backbone was given by name.
    likelihood, head_options, hidden, numeric, epochs, training_options
        Options of the networks, as for `CountRegressor` but with other defaults. Bounded and censored counts need
        `head_options={"objective": "exact"}`.
    lower, upper, censored_above, fractional
        Options of the counts, as for `CountRegressor`.
    checkpoint, random_state, device, verbose, n_jobs
        Options of the fit, as for `CountRegressor`.

    Attributes
    ----------
    predictor_ : Predictor
        The fitted members with their weights and calibration.
    feature_kinds_ : list of Kind
        The type of each column of `feature_names_in_`: "number", "boolean", "category" or "category of numbers". A
        column of dates has been replaced by several columns.
    history_ : History
        Losses of the networks by epoch.
    leaks_ : tuple of str
        Warnings of `fit` about target leaks. They make every verdict "unusable".
    interrupted_ : bool
        True if Ctrl-C ended the training early; the best networks so far are kept.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-2, 2, 200).reshape(-1, 1)
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + X[:, 0]))
    >>> model = DDPNRegressor(n_networks=2, hidden=(16,), epochs=10, random_state=0).fit(X, y)
    >>> low, high = model.predict_interval([[0.0]], coverage=0.9).T
    >>> bool(low[0] <= model.predict([[0.0]])[0] <= high[0])
    True
    """

    likelihood: str | Sequence[str] = "double_poisson"
    hidden: Sequence[int] | str = (128, 128, 128, 64)
    numeric: str = "standard"
    n_networks: int = 5
    preset: str = "paper"
    backbone: str | Callable[..., nn.Module] = "mlp"
    validation: float | str | None = "auto"

    def _networks_per_member(self) -> int:
        return check_integer("n_networks", self.n_networks, 1)

    def _make_head(self) -> Head:
        is_paper = check_choice("preset", self.preset, ("paper", "default")) == "paper"
        options = self.head_options
        if is_paper and self.likelihood == "double_poisson" and isinstance(options, Mapping | None):
            # The paper's objective (Eq. 2) is not defined for mixtures.
            options = options if "components" in (options or {}) else {"objective": "paper", **(options or {})}
        return make_named_head(self.likelihood, options)

    def _network_options(self, rows: int = SMALL_TABLE_ROWS) -> NetworkOptions:
        if self.backbone != "mlp" and not runs_in_this_process(self.n_jobs):
            must = "be None with a backbone of yours, which other processes do not have"
            raise ConfigError(argument="n_jobs", must=must, got=repr(self.n_jobs))
        options = {**self._collect_network_options(), "backbone": self.backbone}
        return make_paper_options(rows, **options) if self.preset == "paper" else NetworkOptions(**options)

    def _pipeline_options(self, counts: CountRange) -> PipelineOptions:
        return PipelineOptions(calibration=None)

    def _plan_fit(
        self, task: Task, train: CountRows, validation: CountRows | None, random: np.random.RandomState
    ) -> FitPlan:
        if validation is None:
            is_held_out = draw_validation_mask(train, self.validation, random.randint(2**31 - 1))
            train, validation = (
                (train.rows(~is_held_out), train.rows(is_held_out)) if is_held_out.any() else (train, None)
            )
        seeds = tuple(random.randint(2**31 - 1, size=task.options.n_networks).tolist())
        run = {name: getattr(task, name) for name in ("runtime", "checkpoint", "verbose", "stream")}
        options = {"head": task.head, "options": self._network_options(len(train)), "seeds": seeds, **run}
        networks = MemberSpec("networks", Networks, options)
        # Validation rows choose the weights. Options of the networks apply to no other member.
        other_task = replace(task, options=NetworkOptions(), checkpoint=None)
        others = [] if validation is None else make_chosen_specs(other_task, self.mix_with)
        return FitPlan(Folds(train, validation), [networks, *others], seeds[0])

    @property
    def encoder_(self) -> FeatureEncoder:
        """The encoder that turns a table into the inputs of the networks."""
        return self._networks.encoder


#: Former arguments of `fit` for validation rows, with the fields of `CountRows` that replace them.
_REMOVED = {
    "X_val": "X", "y_val": "y", "exposure_val": "exposure", "sample_weight_val": "weight", "upper_val": "upper",
    "censored_val": "censored",
}  # fmt: skip


def _raise_for_removed(arguments: Mapping[str, object]) -> None:
    """Raise a `TypeError` if `fit` got an unknown argument.

    If the argument existed in earlier versions, the message names its replacement.
    """
    if not arguments:
        return
    unknown = [name for name in arguments if name not in _REMOVED]
    if unknown:
        raise TypeError(f"fit() got an unexpected keyword argument {unknown[0]!r}")
    parts = ", ".join(f"{_REMOVED[name]}={name}" for name in _REMOVED if name in arguments)
    raise TypeError(f"fit() has one argument for validation rows now: validation=CountRows({parts}).")


def draw_validation_mask(sample: CountRows, share: float | str | None, seed: int) -> np.ndarray:
    """Draw the rows to hold out for validation, and return a mask that is True for them.

    `share` is the share of rows to hold out. "auto" holds out a tenth if there are enough rows, and None holds out no
    rows. Rows of a group are held out together.
    """
    if share == "auto":
        share = HELD_OUT_SHARE if len(sample) >= MIN_ROWS_TO_VALIDATE else 0.0
    if share is not None and not (is_number(share) and 0.0 <= share < 1.0):
        must = 'be "auto", None or a share in [0, 1)'
        raise ConfigError(argument="validation", must=must, got=repr(share))
    groups = len(sample) if sample.group is None else len(np.unique(sample.group))
    if not share or groups < 2:
        return np.zeros(len(sample), dtype=bool)
    return draw_held_out_rows(len(sample), float(share), seed, sample.group)


def _is_complete_array(table: ColumnTable) -> bool:
    """Return True if the table was an array (not a data frame) of numbers or booleans without missing values."""
    is_array = not table.is_named and set(table.kinds) <= {Kind.NUMBER, Kind.BOOLEAN}
    return is_array and not table.is_missing().any()
