"""`CountRegressor`: an ensemble of networks, and further members if asked for, with scikit-learn's interface."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils import Tags, check_random_state

from ddpn.calibration.calibrate import calibrate
from ddpn.calibration.profile import FeatureProfile
from ddpn.count_range import CountRange
from ddpn.deadlines import Clock
from ddpn.durations import parse_duration
from ddpn.errors import ConfigError, InputError
from ddpn.estimators.elsewhere import elsewhere
from ddpn.estimators.fitting import fit_mixture, held_out, merge_equal_rows, range_of
from ddpn.estimators.nested import NestedOptions
from ddpn.estimators.predictions import CountPredictions
from ddpn.executors import Executor
from ddpn.features import FeatureEncoder
from ddpn.heads import DEFAULT_LIKELIHOOD, Head, check_likelihood, make_head
from ddpn.members import MEMBERS
from ddpn.members.candidates import NETWORKS, default_candidates
from ddpn.members.folds import Folds, copies_of
from ddpn.members.member import Member, NotApplicableError
from ddpn.members.network_options import FULL_BATCH_ROWS, SMALL_ROWS, NetworkOptions, check_training_options, plain
from ddpn.members.networks import Networks
from ddpn.members.portfolio import Elsewhere, Portfolio
from ddpn.members.reader import TableReader
from ddpn.model import CountModel
from ddpn.predictor import Predictor
from ddpn.sample import Sample, check_groups, checked_sample
from ddpn.training import History, RowStream, Runtime
from ddpn.validation import check_keys, is_integer, is_number

#: The share of a time budget that fits may take; the rest is for calibration.
_FITS = 0.75
#: Networks of each kind in a portfolio.
_NETWORKS = 5


class CountRegressor(CountPredictions, NestedOptions):
    """Predict counts with honest uncertainty: an ensemble of networks, each predicting a whole distribution.

    Parameters
    ----------
    likelihood : str or sequence of str
        "mixed", a mixture of two Double Poissons and a Negative Binomial with predicted weights, or another name in
        `ddpn.heads.HEADS`: "double_poisson" (the paper's), "poisson", "negative_binomial", "gaussian", ... Several
        names make a mixture of these families.
    head_options : dict, optional
        Options of the likelihood, such as `components=3` for a mixture of three of one family; those of
        "double_poisson" are `beta`, `objective`, `gamma` and `initial_gamma`.
    members : int or "auto"
        Networks in the ensemble, which are trained together and mixed. "auto" fits a portfolio: a GLM, boosted trees,
        networks and, where these still improve, networks that are trained longer. Their weights are chosen on
        validation rows or, up to 5,000 rows, by cross-fitting, and intervals are calibrated at once.
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
        chosen on validation rows. Without validation rows they are left out. With `members="auto"`, further candidates.
    time_budget : float or str, optional
        With `members="auto"`, the time that `fit` may take: seconds, or text such as "60s" or "10m". Default: no limit.
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
        A file from which an interrupted fit with the same integer `random_state` continues. With an executor, the
        finished fits are in a folder beside it, whose name ends with .jobs.
    random_state : int, RandomState or None
        Seed of the split, the weights and the batches; None uses numpy's global random state, so that fits differ.
    device : str
        "auto", "cpu" or "cuda".
    verbose : bool
        Show progress.
    executor : Executor, optional
        Where members are fitted, several at once: `ddpn.executors.LocalProcesses()`, or
        `ddpn.cluster.RayExecutor("auto")`. Default: one after the other, in this process.

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
    >>> model = CountRegressor(members=2, hidden=(16,), epochs=10, random_state=0).fit(X, y)
    >>> low, high = model.predict_interval([[0.0]], coverage=0.9).T
    >>> bool(low[0] <= model.predict([[0.0]])[0] <= high[0])
    True
    """

    _not_saved = ("checkpoint", "verbose", "time_budget", "executor")
    #: Whether the fit of a portfolio calibrates it, too.
    calibrates: bool = True
    #: Called with a line on each step of a portfolio.
    on_step: Callable[[str], object] = staticmethod(lambda text: None)
    #: Training rows of a table that is larger than memory, of which those of `fit` are a sample.
    stream: RowStream | None = None
    #: The rows of a portfolio that is not calibrated yet.
    folds: Folds | None = None
    #: The only candidate of a portfolio that is fitted. Default: all.
    only: str | None = None

    def __init__(
        self,
        *,
        likelihood: str | Sequence[str] = DEFAULT_LIKELIHOOD,
        head_options: Mapping[str, Any] | None = None,
        members: int | str = 5,
        hidden: Sequence[int] | str = "auto",
        numeric: str = "auto",
        epochs: int | str = "auto",
        validation: float | str | None = "auto",
        mix_with: Sequence[str] = (),
        time_budget: float | str | None = None,
        training_options: Mapping[str, Any] | None = None,
        lower: int = 0,
        upper: int | None = None,
        censored_above: int | None = None,
        fractional: str = "error",
        checkpoint: str | PathLike[str] | None = None,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
        executor: Executor | None = None,
    ) -> None:
        self.likelihood = likelihood
        self.head_options = head_options
        self.members = members
        self.hidden = hidden
        self.numeric = numeric
        self.epochs = epochs
        self.validation = validation
        self.mix_with = mix_with
        self.time_budget = time_budget
        self.training_options = training_options
        self.lower = lower
        self.upper = upper
        self.censored_above = censored_above
        self.fractional = fractional
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.executor = executor

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
        """Fit the model: the networks, and what is mixed with them.

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
        head, options, runtime, others = self.checked_options()
        counts = range_of(self, head, upper, censored)
        sample = counts.of(checked_sample(X, y, sample_weight, exposure, self.fractional), upper, censored)
        sample = sample.replace(group=check_groups(groups, len(sample)))
        counts.check_known(sample)
        head.check_targets(sample.y, sample.exposure, sample.labels)
        reader = TableReader()
        reader.fit(X, type(self))
        sample = sample.rows(sample.is_used)
        if len(sample) <= FULL_BATCH_ROWS and sample.group is None:
            sample = merge_equal_rows(sample)
        random = check_random_state(self.random_state)
        given = None
        if X_val is not None and y_val is not None:
            known = checked_sample(X_val, y_val, sample_weight_val, exposure_val, self.fractional, "_val")
            given = counts.of(known, upper_val, censored_val, "_val")
        elif X_val is not None or y_val is not None:
            raise InputError("X_val and y_val must be given together.")
        train, validation = self._split(sample, random, given)
        if validation is not None:
            head.check_targets(validation.y, validation.exposure, validation.labels)
        seeds = tuple(int(seed) for seed in random.randint(2**31 - 1, size=options.members))
        run: dict[str, Any] = {"runtime": runtime, "checkpoint": self._checkpoint(), "verbose": bool(self.verbose)}
        if self.executor is not None:
            # Nodes have devices and folders of their own.
            run = {"runtime": runtime if self.device == "cpu" else None, "checkpoint": None, "verbose": False}
        run["stream"] = self.stream
        if self.members == "auto":
            self._fit_portfolio(reader, (head, options, others), train, validation, seeds[0], counts, run)
        else:
            networks = Networks(head, options, seeds=seeds, **run)
            members = {NETWORKS: networks, **others}
            for member in others.values():
                member.stream = self.stream
            self._set_fitted(reader, fit_mixture(members, train, validation, seeds[0], counts, self._elsewhere()))
            self._interrupted = self._networks.interrupted
            self.predictor_.profile = FeatureProfile.fit(train.X, train.weight)
        if self.interrupted_:
            raise KeyboardInterrupt
        return self

    def _fit_portfolio(
        self,
        reader: TableReader,
        built: tuple[Head, NetworkOptions, dict[str, Member]],
        train: Sample,
        validation: Sample | None,
        seed: int,
        counts: CountRange,
        run: dict[str, Any],
    ) -> None:
        seconds = None if self.time_budget is None else parse_duration(self.time_budget, "time_budget")
        whole = Clock(seconds)
        clock = whole.part(_FITS * whole.left) if self.calibrates else whole
        candidates = default_candidates(*built, train, validation is None, run)
        if self.only is not None:
            candidates = [candidate for candidate in candidates if candidate.name == self.only]
            if not candidates:
                why = "cannot be fitted with this likelihood and these options of networks"
                raise ConfigError(f"The member {self.only!r} {why}.")
        portfolio = Portfolio(candidates, clock, self.on_step, self._elsewhere()).fit(train, validation, seed)
        needs_exposure = train.exposure is not None and not counts.upper_is_total
        predictor = Predictor(portfolio.members, portfolio.weights, needs_exposure, portfolio.seconds, counts)
        self._set_fitted(reader, predictor)
        self._interrupted, self.folds, self.left_out_ = portfolio.interrupted, portfolio.folds, portfolio.left_out
        for name, why in portfolio.left_out.items():
            warnings.warn(f"{MEMBERS[name].label or name} left out of the mixture: {why}.", UserWarning, stacklevel=4)
        if self.calibrates:
            calibrate(predictor, portfolio.folds, seed, clock=whole)
            self.folds = None

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
        own = {name: getattr(self, name) for name in ("members", "hidden", "numeric", "epochs")}
        if isinstance(self.members, str):
            if self.members != "auto":
                raise ConfigError(f'members must be "auto" or an integer of at least 1, got {self.members!r}.')
            own["members"] = _NETWORKS
        return NetworkOptions(**own, **check_training_options(self.training_options))

    def _runtime(self) -> Runtime:
        device = "auto" if self.executor is not None and self.device != "cpu" else self.device
        return Runtime(device, (self.training_options or {}).get("precision", "float32"))

    def _other_members(self, head: Head, options: NetworkOptions) -> dict[str, Member]:
        """Unfitted members to mix the networks with."""
        if isinstance(self.mix_with, str) or not isinstance(self.mix_with, Sequence):
            raise ConfigError(f'mix_with must be a list of names such as ["glm"], got {self.mix_with!r}.')
        check_keys(self.mix_with, [name for name in MEMBERS if name != NETWORKS], "mix_with")
        if "glm" in self.mix_with and not options.hidden:
            raise ConfigError('mix_with must not contain "glm" without hidden layers: the networks are a GLM already.')
        try:
            return {name: MEMBERS[name].like(head) for name in self.mix_with}
        except NotApplicableError as error:
            raise ConfigError(f"mix_with contains a member that cannot be used: {error}.") from None

    def _split(
        self, sample: Sample, random: np.random.RandomState, given: Sample | None
    ) -> tuple[Sample, Sample | None]:
        """Training and validation rows."""
        if given is not None:
            if (sample.exposure is None) != (given.exposure is None):
                raise InputError("exposure and exposure_val must be given together.")
            return sample, given
        share = self._validation_share()
        if self.members == "auto" and share == "auto":
            share = None if len(sample) <= SMALL_ROWS else share
        kept = held_out(sample, share, random.randint(2**31 - 1))
        return sample.rows(~kept), sample.rows(kept) if kept.any() else None

    def _validation_share(self) -> float | str | None:
        share = self.validation
        if share is None or share == "auto":
            return share
        if not is_number(share) or not 0.0 <= share < 1.0:
            raise ConfigError(f'validation must be "auto", None or a share in [0, 1), got {share!r}.')
        return share

    def _checkpoint(self) -> Path | None:
        if self.checkpoint is not None and not is_integer(self.random_state):
            raise ConfigError(f"random_state must be an integer to use a checkpoint, got {self.random_state!r}.")
        return None if self.checkpoint is None else Path(self.checkpoint)

    def _elsewhere(self) -> Elsewhere | None:
        return elsewhere(self, self._checkpoint(), self._not_saved)

    # What was fitted ---------------------------------------------------------------------------------------------

    @property
    def _networks(self) -> Networks:
        member = self._fitted.members.get(NETWORKS)
        first = None if member is None else copies_of(member)[0]
        if not isinstance(first, Networks):
            raise AttributeError("there are no networks in this model")
        return first

    @property
    def history_(self) -> History:
        """How the training of the networks went."""
        parts = [copy.history for copy in copies_of(self._fitted.members[NETWORKS]) if isinstance(copy, Networks)]
        return History.joined(parts) if parts else self._networks.history

    @property
    def interrupted_(self) -> bool:
        """Whether Ctrl-C ended the fit early."""
        return bool(getattr(self, "_interrupted", False)) or any(m.interrupted for m in self._fitted.members.values())

    @property
    def encoder_(self) -> FeatureEncoder:
        """The encoder of the networks' inputs."""
        return self._networks.encoder

    @property
    def model_(self) -> CountModel:
        """The networks themselves."""
        return self._networks.model

    @property
    def head_(self) -> Head:
        """The likelihood of the networks."""
        return self._networks.head if NETWORKS in self._fitted.members else self._head()

    @property
    def numeric_(self) -> str:
        """The encoding of numbers that is used."""
        return self._networks.encoder.numeric

    @property
    def n_rows_(self) -> int:
        """Training rows with a weight above 0."""
        return self._networks.n_rows

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
