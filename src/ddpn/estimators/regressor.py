"""`CountRegressor`: an ensemble of networks, and further members if asked for, with scikit-learn's interface."""

import time
import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils import Tags, check_random_state

from ddpn.calibration.profile import FeatureProfile
from ddpn.errors import ConfigError, InputError
from ddpn.estimators.nested import NestedOptions
from ddpn.estimators.predictions import CountPredictions
from ddpn.features import FeatureEncoder
from ddpn.heads import DEFAULT_LIKELIHOOD, Head, check_likelihood, make_head
from ddpn.members import MEMBERS, choose_weights
from ddpn.members.member import Member, NotApplicableError
from ddpn.members.network_options import FULL_BATCH_ROWS, NetworkOptions, check_training_options, plain
from ddpn.members.networks import Networks
from ddpn.members.reader import TableReader
from ddpn.model import CountModel
from ddpn.predictor import Predictor
from ddpn.sample import Sample, checked_sample
from ddpn.training import History, Runtime
from ddpn.validation import check_keys, is_integer, is_number

NETWORKS = "networks"
#: With fewer rows none are held out: they are needed for fitting, and would score too noisily.
MIN_SPLIT_ROWS = 200


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
    members : int
        Networks in the ensemble. They are trained together and mixed.
    hidden : sequence of int or "auto"
        Widths of the hidden layers; () for a linear model. "auto" is (64, 64) up to 5,000 rows and (128, 128, 128, 64)
        beyond.
    numeric : {"auto", "standard", "piecewise", "steps"}
        Encoding of numbers, see `FeatureEncoder`; "auto" tries all three on validation rows.
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
        `score`, `patience`, `precision`, `activation`, `bins`, `start` (see `NetworkOptions`).
    fractional : {"error", "round"}
        What to do where y is not an integer.
    checkpoint : path, optional
        A file from which an interrupted fit with the same integer `random_state` continues.
    random_state : int, RandomState or None
    device : str
        "auto", "cpu" or "cuda".
    verbose : bool
        Show progress.

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

    _not_saved = ("checkpoint", "verbose")

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
        fractional: str = "error",
        checkpoint: str | PathLike[str] | None = None,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
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
        self.fractional = fractional
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

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
    ) -> Self:
        """Train the ensemble.

        `sample_weight` counts a row so many times. `exposure`, the known scale of a row (days observed, area, number
        of customers), multiplies its predicted location; pass it to the predictions too. A fit that is interrupted
        (KeyboardInterrupt) after an epoch or more leaves the best ensemble so far; one that is interrupted earlier, or
        fails, leaves the estimator as it was.
        """
        head, options, runtime, others = self.checked_options()
        sample = checked_sample(X, y, sample_weight, exposure, self.fractional)
        reader = TableReader()
        reader.fit(X, type(self))
        if sample.is_used.sum() <= FULL_BATCH_ROWS:
            sample = merge_equal_rows(sample)
        random = check_random_state(self.random_state)
        train, validation = self._split(sample, random, X_val, y_val, exposure_val, sample_weight_val)
        seeds = tuple(int(seed) for seed in random.randint(2**31 - 1, size=options.members))
        checkpoint = self._checkpoint()
        networks = Networks(
            head, options, seeds=seeds, runtime=runtime, checkpoint=checkpoint, verbose=bool(self.verbose)
        )
        self._set_fitted(reader, _fit_mixture({NETWORKS: networks, **others}, train, validation, seeds[0]))
        self.predictor_.profile = FeatureProfile.fit(train.X, train.weight)
        if self.interrupted_:
            raise KeyboardInterrupt
        return self

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
        return NetworkOptions(**own, **check_training_options(self.training_options))

    def _runtime(self) -> Runtime:
        return Runtime(self.device, (self.training_options or {}).get("precision", "float32"))

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
        self, sample: Sample, random: np.random.RandomState, X_val: Any, y_val: Any, exposure_val: Any, weight_val: Any
    ) -> tuple[Sample, Sample | None]:
        """Training and validation rows."""
        if (X_val is None) != (y_val is None):
            raise InputError("X_val and y_val must be given together.")
        if X_val is not None:
            if (sample.exposure is None) != (exposure_val is None):
                raise InputError("exposure and exposure_val must be given together.")
            return sample, checked_sample(X_val, y_val, weight_val, exposure_val, self.fractional, "_val")
        held_out = _held_out(sample, self._validation_share(), random.randint(2**31 - 1))
        return sample.rows(~held_out), sample.rows(held_out) if held_out.any() else None

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

    # What was fitted ---------------------------------------------------------------------------------------------

    @property
    def _networks(self) -> Networks:
        member = self._fitted.members[NETWORKS]
        assert isinstance(member, Networks)
        return member

    @property
    def history_(self) -> History:
        """How the training of the networks went."""
        return self._networks.history

    @property
    def interrupted_(self) -> bool:
        """Whether Ctrl-C ended the training early."""
        return self._networks.interrupted

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
        return self._networks.head

    @property
    def trials_(self) -> dict[str, float]:
        """Validation score (CRPS, or NLL for mixtures) of each encoding that numeric="auto" tried."""
        return self._networks.trials

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


def _fit_mixture(members: Mapping[str, Member], train: Sample, validation: Sample | None, seed: int) -> Predictor:
    """Fit every member; weights are chosen on validation rows. An interruption leaves what is there so far."""
    fitted: dict[str, Member] = {}
    seconds: dict[str, float] = {}
    for name, member in members.items():
        if name != NETWORKS and (validation is None or any(m.interrupted for m in fitted.values())):
            continue
        started = time.perf_counter()
        try:
            fitted[name] = member.fit(train, validation, seed)
        except NotApplicableError as error:
            warnings.warn(f"{member.label or name} is left out of the mixture: {error}.", UserWarning, stacklevel=3)
        except KeyboardInterrupt:
            networks = fitted.get(NETWORKS)
            if not isinstance(networks, Networks):
                raise
            networks.history.interrupted = True
        else:
            seconds[name] = time.perf_counter() - started
    weights = {NETWORKS: 1.0} if len(fitted) == 1 or validation is None else choose_weights(fitted, validation)
    return Predictor(fitted, weights, train.exposure is not None, seconds)


def _held_out(sample: Sample, share: float | str | None, seed: int) -> np.ndarray:
    """Mask of the rows that are kept for validation: by default a tenth, where there are enough rows."""
    from sklearn.model_selection import train_test_split  # slow to import

    mask = np.zeros(len(sample), dtype=bool)
    usable = np.flatnonzero(sample.is_used)
    if share == "auto":
        share = 0.1 if len(usable) >= MIN_SPLIT_ROWS else 0.0
    if share and len(usable) >= 2:
        size = min(len(usable) - 1, max(1, round(float(share) * len(usable))))
        mask[train_test_split(usable, test_size=size, random_state=seed)[1]] = True
    return mask


def merge_equal_rows(sample: Sample) -> Sample:
    """Merge equal rows into one with the sum of their weights, drop rows of weight 0, and sort the rest.

    For small numeric arrays only, others stay as they are: a fit with integer weights and one with repeated rows are
    then the same computation, not merely the same expectation.
    """
    X = sample.X
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "buif" or not np.isfinite(X).all():
        return sample
    kept, weight = sample.is_used, sample.weight_or_ones
    extra = [sample.y] if sample.exposure is None else [sample.y, sample.exposure]
    unique, inverse = np.unique(np.column_stack([X, *extra])[kept], axis=0, return_inverse=True)
    first = np.full(len(unique), len(X))
    np.minimum.at(first, inverse.ravel(), np.flatnonzero(kept))
    total = np.bincount(inverse.ravel(), weights=weight[kept], minlength=len(unique))
    return sample.rows(first).replace(weight=total)
