"""What `CountRegressor` and `DDPNRegressor` have in common: options of networks, checked rows, what was fitted."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from ddpn.estimators.count_estimator import CountEstimator
from ddpn.estimators.estimator import merge_equal_rows, named_head, needs_exposure, plain_options
from ddpn.members import MEMBERS, mixable
from ddpn.members.folds import Folds, MemberFits, copies_of
from ddpn.members.member import NotApplicableError, Task
from ddpn.members.network_options import FULL_BATCH_ROWS, NetworkOptions, check_training_options
from ddpn.members.networks import Networks
from ddpn.members.portfolio import Candidate, Elsewhere, Portfolio
from ddpn.networks.heads import DEFAULT_LIKELIHOOD, Head
from ddpn.networks.training import History, RowStream, Runtime
from ddpn.predictor import Predictor
from ddpn.runtime.deadlines import Clock
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.jobs import Where, is_here
from ddpn.runtime.validation import check_keys, is_integer
from ddpn.sample import Sample, check_groups, checked_sample
from ddpn.storage.results import ResultStore
from ddpn.tables.count_range import CountRange


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkRegressor(CountEstimator):
    """An estimator with networks: everything but how many there are, and what else is fitted."""

    likelihood: str | Sequence[str] = DEFAULT_LIKELIHOOD
    head_options: Mapping[str, Any] | None = None
    hidden: Sequence[int] | str = "auto"
    numeric: str = "auto"
    epochs: int | str = "auto"
    mix_with: Sequence[str] = ()
    training_options: Mapping[str, Any] | None = None
    lower: int = 0
    upper: int | None = None
    censored_above: int | None = None
    fractional: str = "error"
    checkpoint: str | PathLike[str] | None = None
    random_state: Any = None
    device: str = "auto"
    verbose: bool = False
    n_jobs: Where = None

    _nested = ("head_options", "training_options")
    _not_saved = ("checkpoint", "verbose", "time_budget", "n_jobs")

    # Fitting -----------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        exposure: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        exposure_val: Any = None,
        sample_weight_val: Any = None,
        upper: Any = None,
        censored: Any = None,
        upper_val: Any = None,
        censored_val: Any = None,
        groups: Any = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or data frame
            One row per count. Columns may hold numbers, text, booleans and missing values.
        y : array-like
            The counts.
        sample_weight : array-like, optional
            How many times each row counts.
        exposure : array-like, optional
            The known scale of each row (days observed, area, number of customers), which multiplies its predicted
            location. Pass it to the predictions too.
        X_val, y_val, exposure_val, sample_weight_val, upper_val, censored_val : optional
            Validation rows, instead of a share of the training rows.
        upper : array-like, optional
            The largest possible count of each row (beds, seats). Pass it to the predictions too.
        censored : array-like of bool, optional
            Rows whose count stands for that many or more.
        groups : array-like, optional
            What each row belongs to, such as a person. Rows of one group are kept together wherever rows are held out,
            so that weights and intervals are those for new groups.

        Returns
        -------
        self

        Notes
        -----
        A fit that is interrupted (KeyboardInterrupt) after an epoch or more leaves the best ensemble so far; one that
        is interrupted earlier, or fails, leaves the estimator as it was.
        """
        head = named_head(self.likelihood, self.head_options)
        train, counts = self._rows(head, X, y, sample_weight, exposure, upper, censored)
        train = train.replace(group=check_groups(groups, len(train)))
        validation = None
        if X_val is not None and y_val is not None:
            known = checked_sample(X_val, y_val, sample_weight_val, exposure_val, self.fractional, "_val")
            validation = counts.of(known, upper_val, censored_val, "_val")
            if (train.exposure is None) != (validation.exposure is None):
                raise InputError("exposure and exposure_val must be given together.")
        elif X_val is not None or y_val is not None:
            raise InputError("X_val and y_val must be given together.")
        self._fit_and_finish(train, validation, counts)
        if self.interrupted_:
            raise KeyboardInterrupt
        return self

    @abstractmethod
    def _fit_and_finish(self, train: Sample, validation: Sample | None, counts: CountRange) -> None:
        """Fit members, and do what belongs to `fit` besides."""

    def fit_members(
        self,
        train: Sample,
        validation: Sample | None,
        counts: CountRange,
        clock: Clock = Clock(),  # noqa: B008
        on_step: Callable[[str], object] = lambda text: None,
        stream: RowStream | None = None,
    ) -> Portfolio:
        """Fit the members of the model and choose their weights; `fit` without calibration, for rows that are checked.

        `train` is a sample of the `stream`, if there is one. An interrupted fit is not raised again where there is
        something to keep: `interrupted_` is true then.
        """
        head, options, runtime = self.checked_options()
        reader, _ = self._columns(train, counts, head)
        if validation is not None:
            head.check_targets(validation.y, validation.exposure, validation.labels)
        train = train.rows(train.is_used)
        self.n_rows_, self.n_validation_rows_ = len(train), 0
        if len(train) <= FULL_BATCH_ROWS and train.group is None and (numbers := _finite_numbers(train.X)) is not None:
            train = merge_equal_rows(train, numbers)
        # Nodes have devices and folders of their own.
        here = is_here(self.n_jobs)
        task = Task(
            head,
            len(train),
            stream=stream,
            options=options,
            runtime=runtime if here or self.device == "cpu" else None,
            checkpoint=self._checkpoint() if here else None,
            verbose=bool(self.verbose) and here,
        )
        random = check_random_state(self.random_state)
        folds, candidates, seed = self._planned(task, train, validation, random)
        if folds.validation is not None:
            self.n_rows_, self.n_validation_rows_ = len(folds.train), len(folds.validation)
        portfolio = Portfolio(candidates, clock, on_step, self._elsewhere(on_step)).fit(folds, seed)
        parts = portfolio.members, portfolio.weights, needs_exposure(train, counts), portfolio.seconds, counts
        self._set_fitted(reader, Predictor(*parts))
        self._interrupted, self.left_out_ = portfolio.interrupted, portfolio.left_out
        for name, why in portfolio.left_out.items():
            label = MEMBERS[name].label or name
            warnings.warn(f"The mixture is fitted without {label}: {why}.", UserWarning, stacklevel=4)
        return portfolio

    @abstractmethod
    def _planned(
        self, task: Task, train: Sample, validation: Sample | None, random: np.random.RandomState
    ) -> tuple[Folds, list[Candidate], int]:
        """Rows to fit to and to hold out, what is fitted to them, and the seed of the fits."""

    def checked_options(self) -> tuple[Head, NetworkOptions, Runtime]:
        """What `fit` builds from the arguments, or a `ConfigError` for the first that is invalid."""
        head = named_head(self.likelihood, self.head_options)
        options, runtime = self._network_options(), self._runtime()
        options.config(rows=1000, seeds=(0,))
        self._checkpoint()
        self._check_mixed(head, options)
        return head, options, runtime

    def _network_options(self) -> NetworkOptions:
        own = {name: getattr(self, name) for name in ("hidden", "numeric", "epochs")}
        return NetworkOptions(members=self._networks_per_kind(), **own, **check_training_options(self.training_options))

    @abstractmethod
    def _networks_per_kind(self) -> int:
        """How many networks are trained together."""

    def _runtime(self) -> Runtime:
        device = "auto" if self.device != "cpu" and not is_here(self.n_jobs) else self.device
        return Runtime(device, (self.training_options or {}).get("precision", "float32"))

    def _check_mixed(self, head: Head, options: NetworkOptions) -> None:
        """Raise a `ConfigError` for members that networks cannot be mixed with."""
        if isinstance(self.mix_with, str) or not isinstance(self.mix_with, Sequence):
            must = 'be a list of names such as ["glm"]'
            raise ConfigError(argument="mix_with", must=must, got=repr(self.mix_with))
        check_keys(self.mix_with, mixable(), "mix_with")
        if "glm" in self.mix_with and not options.hidden:
            must = 'not contain "glm" without hidden layers: the networks are a GLM already'
            raise ConfigError(argument="mix_with", must=must)
        try:
            for name in self.mix_with:
                MEMBERS[name].like(Task(head))
        except NotApplicableError as error:
            raise ConfigError(f"contains a member that cannot be used: {error}", argument="mix_with") from None

    def _checkpoint(self) -> Path | None:
        if self.checkpoint is not None and not is_integer(self.random_state):
            raise ConfigError(f"random_state must be an integer to use a checkpoint, got {self.random_state!r}.")
        return None if self.checkpoint is None else Path(self.checkpoint)

    def _elsewhere(self, on_step: Callable[[str], object]) -> Elsewhere | None:
        """How members are fitted as jobs; None if they are fitted in this process."""
        if is_here(self.n_jobs):
            return None
        checkpoint = self._checkpoint()
        # Finished fits are kept beside the checkpoint.
        store = None if checkpoint is None else ResultStore(checkpoint.with_name(f"{checkpoint.name}.jobs"))
        about = plain_options(self, (*self._not_saved, "device"))
        return lambda folds, seed: MemberFits(self.n_jobs, folds, seed, store, about, on_step)

    # What was fitted ---------------------------------------------------------------------------------------------

    @property
    def _copies(self) -> list[Networks]:
        """The networks: of each fold, or those of all rows alone."""
        return [copy for each in self._fitted.members.values() for copy in copies_of(each) if type(copy) is Networks]

    @property
    def _networks(self) -> Networks:
        if not self._copies:
            raise AttributeError("there are no networks in this model")
        return self._copies[0]

    @property
    def history_(self) -> History:
        """How the training of the networks went."""
        _ = self._networks  # or there is no history
        return History.joined([copy.history for copy in self._copies])

    @property
    def interrupted_(self) -> bool:
        """Whether Ctrl-C ended the fit early."""
        return bool(getattr(self, "_interrupted", False)) or any(m.interrupted for m in self._fitted.members.values())

    @property
    def head_(self) -> Head:
        """The likelihood of the networks."""
        return self._copies[0].head if self._copies else named_head(self.likelihood, self.head_options)

    @property
    def numeric_(self) -> str:
        """The encoding of numbers that is used."""
        return self._networks.encoder.numeric

    def _extra_state(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        known = {"rows": self.n_rows_, "validation_rows": self.n_validation_rows_, "interrupted": self.interrupted_}
        return {}, known

    def _restore_extra(self, files: dict[str, bytes], extra: dict[str, Any]) -> None:
        self.n_rows_, self.n_validation_rows_ = extra["rows"], extra.get("validation_rows", 0)
        self._interrupted = extra.get("interrupted", False)


def _finite_numbers(X: Any) -> np.ndarray | None:
    """A numeric array or sparse matrix as an array; None for other tables and where a number is missing."""
    from scipy import sparse  # slow to import

    found = X.toarray() if sparse.issparse(X) else X
    is_numeric = isinstance(found, np.ndarray) and found.ndim == 2 and found.dtype.kind in "buif"
    return found if is_numeric and np.isfinite(found).all() else None
