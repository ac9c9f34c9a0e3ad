"""What `CountRegressor` and `DDPNRegressor` have in common: options of networks, checked rows, what was fitted."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils import Tags, check_random_state

from ddpn.estimators.fitting import merge_equal_rows, range_of
from ddpn.estimators.nested import NestedOptions
from ddpn.estimators.predictions import CountPredictions
from ddpn.estimators.saving import plain_options
from ddpn.members import MEMBERS
from ddpn.members.candidates import NETWORKS
from ddpn.members.fit_jobs import MemberFits
from ddpn.members.folds import copies_of
from ddpn.members.member import Member, NotApplicableError
from ddpn.members.network_options import FULL_BATCH_ROWS, NetworkOptions, check_training_options, plain
from ddpn.members.networks import Networks
from ddpn.members.portfolio import Elsewhere
from ddpn.members.reader import TableReader
from ddpn.networks.heads import Head, check_likelihood, make_head
from ddpn.networks.training import History, RowStream, Runtime
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.jobs import is_here
from ddpn.runtime.validation import check_keys, is_integer
from ddpn.sample import Sample, check_groups, checked_sample
from ddpn.storage.results import ResultStore
from ddpn.tables.count_range import CountRange


@dataclass(frozen=True)
class Checked:
    """Validated options and rows of a fit; `run` are arguments of `Networks` about where and how they are trained."""

    head: Head
    options: NetworkOptions
    others: dict[str, Member]
    counts: CountRange
    reader: TableReader
    sample: Sample
    validation: Sample | None
    random: np.random.RandomState
    run: dict[str, Any]

    @property
    def needs_exposure(self) -> bool:
        """Whether predictions need exposures."""
        return self.sample.exposure is not None and not self.counts.upper_is_total


class NetworkRegressor(CountPredictions, NestedOptions):
    """An estimator with networks: everything but how many there are, and what else is fitted."""

    likelihood: Any
    head_options: Any
    hidden: Any
    numeric: Any
    epochs: Any
    mix_with: Any
    training_options: Any
    lower: Any
    upper: Any
    censored_above: Any
    fractional: Any
    checkpoint: Any
    random_state: Any
    device: Any
    verbose: Any
    n_jobs: Any
    n_rows_: int
    _not_saved = ("checkpoint", "verbose", "time_budget", "n_jobs")
    #: Called with a line on each step.
    on_step: Callable[[str], object] = staticmethod(lambda text: None)
    #: Training rows of a table that is larger than memory, of which those of `fit` are a sample.
    stream: RowStream | None = None

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
        rows = checked_sample(X, y, sample_weight, exposure, self.fractional)
        groups = check_groups(groups, len(rows))
        known = None
        if X_val is not None and y_val is not None:
            known = checked_sample(X_val, y_val, sample_weight_val, exposure_val, self.fractional, "_val")
        elif X_val is not None or y_val is not None:
            raise InputError("X_val and y_val must be given together.")
        bounds = (upper, censored), (upper_val, censored_val)
        self._fit(self._checked(X, rows.replace(group=groups), known, *bounds))
        if self.interrupted_:
            raise KeyboardInterrupt
        return self

    @abstractmethod
    def _fit(self, checked: Checked) -> None:
        """Fit members, and keep the predictor."""

    def _checked(
        self, X: Any, sample: Sample, validation: Sample | None, bounds: tuple[Any, Any], bounds_val: tuple[Any, Any]
    ) -> Checked:
        head, options, runtime, others = self.checked_options()
        counts = range_of(self, head, *bounds)
        sample = counts.of(sample, *bounds)
        counts.check_known(sample)
        head.check_targets(sample.y, sample.exposure, sample.labels)
        if validation is not None:
            validation = counts.of(validation, *bounds_val, "_val")
            head.check_targets(validation.y, validation.exposure, validation.labels)
            if (sample.exposure is None) != (validation.exposure is None):
                raise InputError("exposure and exposure_val must be given together.")
        reader = TableReader()
        reader.fit(X, type(self))
        sample = sample.rows(sample.is_used)
        self.n_rows_ = len(sample)
        if len(sample) <= FULL_BATCH_ROWS and sample.group is None:
            sample = merge_equal_rows(sample)
        run: dict[str, Any] = {"runtime": runtime, "checkpoint": self._checkpoint(), "verbose": bool(self.verbose)}
        if not is_here(self.n_jobs):
            # Nodes have devices and folders of their own.
            run = {"runtime": runtime if self.device == "cpu" else None, "checkpoint": None, "verbose": False}
        run["stream"] = self.stream
        random = check_random_state(self.random_state)
        return Checked(head, options, others, counts, reader, sample, validation, random, run)

    def checked_options(self) -> tuple[Head, NetworkOptions, Runtime, dict[str, Member]]:
        """What `fit` builds from the arguments, or a `ConfigError` for the first that is invalid."""
        head, options, runtime = self._head(), self._network_options(), self._runtime()
        options.config(rows=1000, seeds=(0,))
        self._checkpoint()
        return head, options, runtime, self._other_members(head, options)

    def _head(self) -> Head:
        check_likelihood(self.likelihood)
        if self.head_options is not None and not isinstance(self.head_options, Mapping):
            raise ConfigError(f'head_options must be a dictionary such as {{"beta": 0.5}}, got {self.head_options!r}.')
        return make_head(self.likelihood, **{name: plain(v) for name, v in dict(self.head_options or {}).items()})

    def _network_options(self) -> NetworkOptions:
        own = {name: getattr(self, name) for name in ("hidden", "numeric", "epochs")}
        return NetworkOptions(members=self._networks_per_kind(), **own, **check_training_options(self.training_options))

    @abstractmethod
    def _networks_per_kind(self) -> int:
        """How many networks are trained together."""

    def _runtime(self) -> Runtime:
        device = "auto" if self.device != "cpu" and not is_here(self.n_jobs) else self.device
        return Runtime(device, (self.training_options or {}).get("precision", "float32"))

    def _other_members(self, head: Head, options: NetworkOptions) -> dict[str, Member]:
        """Unfitted members to mix the networks with."""
        if isinstance(self.mix_with, str) or not isinstance(self.mix_with, Sequence):
            must = 'be a list of names such as ["glm"]'
            raise ConfigError(argument="mix_with", must=must, got=repr(self.mix_with))
        check_keys(self.mix_with, [name for name in MEMBERS if name != NETWORKS], "mix_with")
        if "glm" in self.mix_with and not options.hidden:
            must = 'not contain "glm" without hidden layers: the networks are a GLM already'
            raise ConfigError(argument="mix_with", must=must)
        try:
            return {name: MEMBERS[name].like(head) for name in self.mix_with}
        except NotApplicableError as error:
            raise ConfigError(f"contains a member that cannot be used: {error}", argument="mix_with") from None

    def _checkpoint(self) -> Path | None:
        if self.checkpoint is not None and not is_integer(self.random_state):
            raise ConfigError(f"random_state must be an integer to use a checkpoint, got {self.random_state!r}.")
        return None if self.checkpoint is None else Path(self.checkpoint)

    def _elsewhere(self) -> Elsewhere | None:
        """How members are fitted as jobs; None if they are fitted in this process."""
        if is_here(self.n_jobs):
            return None
        checkpoint = self._checkpoint()
        # Finished fits are kept beside the checkpoint.
        store = None if checkpoint is None else ResultStore(checkpoint.with_name(f"{checkpoint.name}.jobs"))
        about = plain_options(self, (*self._not_saved, "device"))
        return lambda folds, seed: MemberFits(self.n_jobs, folds, seed, store, about, self.on_step)

    # What was fitted ---------------------------------------------------------------------------------------------

    @property
    def _copies(self) -> list[Networks]:
        """The networks: of each fold, or those of all rows alone."""
        member = self._fitted.members.get(NETWORKS)
        found = [] if member is None else [copy for copy in copies_of(member) if isinstance(copy, Networks)]
        if not found:
            raise AttributeError("there are no networks in this model")
        return found

    @property
    def _networks(self) -> Networks:
        return self._copies[0]

    @property
    def history_(self) -> History:
        """How the training of the networks went."""
        return History.joined([copy.history for copy in self._copies])

    @property
    def interrupted_(self) -> bool:
        """Whether Ctrl-C ended the fit early."""
        return bool(getattr(self, "_interrupted", False)) or any(m.interrupted for m in self._fitted.members.values())

    @property
    def head_(self) -> Head:
        """The likelihood of the networks."""
        return self._networks.head if NETWORKS in self._fitted.members else self._head()

    @property
    def numeric_(self) -> str:
        """The encoding of numbers that is used."""
        return self._networks.encoder.numeric

    def _extra_state(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        return {}, {"rows": self.n_rows_}

    def _restore_extra(self, files: dict[str, bytes], extra: dict[str, Any]) -> None:
        self.n_rows_ = extra["rows"]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
