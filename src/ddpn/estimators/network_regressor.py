"""`NetworkRegressor`, the base class of the estimators with networks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from ddpn.estimators.data_warnings import warn_about_table
from ddpn.estimators.estimator import CountEstimator, collect_json_options, make_named_head
from ddpn.members import MEMBERS, list_mixable_members
from ddpn.members.folds import JobOptions, get_fold_copies
from ddpn.members.member import NotApplicableError, Task
from ddpn.members.network_options import FULL_BATCH_ROWS, NetworkOptions, check_training_options
from ddpn.members.networks import Networks
from ddpn.networks.heads import DEFAULT_LIKELIHOOD, Head
from ddpn.networks.training import History, RowStream, Runtime
from ddpn.pipeline import PLAIN_STEPS, TRAINING, FitPlan, FittedPipeline, PipelineOptions, fit_pipeline
from ddpn.rows.checks import TableLike
from ddpn.rows.count_range import CountRange
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError, DataWarning, InputError, warn_user
from ddpn.runtime.frames import library_name
from ddpn.runtime.jobs import Workers, runs_in_this_process
from ddpn.runtime.progress import is_notebook, show_steps
from ddpn.runtime.time_plan import Schedule
from ddpn.runtime.validation import check_keys, is_integer
from ddpn.storage.contents import JsonObject
from ddpn.storage.results import ResultStore
from ddpn.tables.columns import ColumnTable, Kind
from ddpn.tables.date_columns import DateColumns
from ddpn.tables.reading import read_table
from ddpn.tables.schema import Schema


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkRegressor(CountEstimator):
    """Base class of `CountRegressor` and `DDPNRegressor`, the estimators with networks.

    Subclasses decide which rows are held out and which members are fitted (`_plan_fit`), what is calibrated
    (`_pipeline_options`), and how many networks a member has (`_networks_per_member`).
    """

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
    n_jobs: Workers = None

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
        _reject_old_arguments(removed)
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

        Raise a `ConfigError` if the model does not support `counts`, the range of possible counts.
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

        If the user presses Ctrl-C, the model is kept if it can be used, and the result names the steps that are
        missing.

        Parameters
        ----------
        train : CountRows
            The training rows or, with `stream`, a sample of them.
        validation : CountRows or None
            The user's validation rows. If they are None, `_plan_fit` decides which training rows are held out.
        counts : CountRange
            The range of possible counts.
        options : PipelineOptions
            What to calibrate, and which members to fit for comparison.
        schedule : Schedule
            The steps of the fit and its time limit.
        stream : RowStream, optional
            Reads all training rows in several passes if the table is too large for memory.

        Returns
        -------
        FittedPipeline
            The fitted members and the calibration, with notes for the user.
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
            train = _merge_repeated_rows(train)
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
        """Return the plan of a fit: the rows to hold out, the members of the mixture to fit, and the random seed.

        `task` has the likelihood and the options that all members share. `train` are the training rows. `validation`
        are the user's validation rows; if they are None, rows of `train` are held out unless there are too few.
        `random` draws these rows and the seed.
        """

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
        """The head of the networks, which turns their raw outputs into distributions of the family `likelihood`."""
        return self._all_networks[0].head if self._all_networks else self._make_head()

    def _extra_state(self) -> tuple[dict[str, bytes], JsonObject]:
        extra = {"rows": self.n_rows_, "validation_rows": self.n_validation_rows_, "interrupted": self.interrupted_}
        return {}, extra

    def _restore_extra(self, files: dict[str, bytes], extra: JsonObject) -> None:
        self.n_rows_, self.n_validation_rows_ = extra["rows"], extra.get("validation_rows", 0)
        self._interrupted = extra.get("interrupted", False)


#: Former arguments of `fit` for validation rows, with the fields of `CountRows` that replace them.
_REMOVED = {
    "X_val": "X", "y_val": "y", "exposure_val": "exposure", "sample_weight_val": "weight", "upper_val": "upper",
    "censored_val": "censored",
}  # fmt: skip


def _reject_old_arguments(arguments: Mapping[str, object]) -> None:
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


def _merge_repeated_rows(rows: CountRows[ColumnTable]) -> CountRows[ColumnTable]:
    """Merge rows that were repeated, so that they are fitted exactly like one row with a larger weight.

    If rows with equal inputs have different counts, equal rows are equal by chance, and nothing is merged: otherwise
    all rows with a certain count would be in the same fold, and be predicted by members that never saw this count.
    """
    values = np.column_stack([column.values for column in rows.X])
    merged = rows.merge_equal_rows(values)
    inputs = np.column_stack([column.values for column in merged.X])
    return merged if len(np.unique(inputs, axis=0)) == len(inputs) else rows


def _is_complete_array(table: ColumnTable) -> bool:
    """Return True if the table was an array (not a data frame) of numbers or booleans without missing values."""
    is_array = not table.is_named and set(table.kinds) <= {Kind.NUMBER, Kind.BOOLEAN}
    return is_array and not table.is_missing().any()
