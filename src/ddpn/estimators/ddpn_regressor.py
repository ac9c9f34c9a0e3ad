"""`DDPNRegressor`: an ensemble of networks as in the paper, with scikit-learn's interface."""

from dataclasses import dataclass, replace

import numpy as np

from ddpn.calibration.profile import FeatureProfile
from ddpn.estimators.network_regressor import NetworkRegressor
from ddpn.members.folds import Folds
from ddpn.members.member import Task
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Networks
from ddpn.members.portfolio import Candidate, chosen_candidates
from ddpn.networks.model import CountModel
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_integer, is_number
from ddpn.sample import Sample
from ddpn.tables.count_range import CountRange
from ddpn.tables.encoding import FeatureEncoder
from ddpn.tables.splits import held_out_rows

#: With fewer rows none are held out: they are needed for fitting, and would score too noisily.
MIN_SPLIT_ROWS = 200


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

    @property
    def model_(self) -> CountModel:
        """The networks themselves."""
        return self._networks.model


def held_out(sample: Sample, share: float | str | None, seed: int) -> np.ndarray:
    """Mask of the rows that are kept for validation: by default a tenth, where there are enough rows."""
    if share == "auto":
        share = 0.1 if len(sample) >= MIN_SPLIT_ROWS else 0.0
    groups = len(sample) if sample.group is None else len(np.unique(sample.group))
    if not share or groups < 2:
        return np.zeros(len(sample), dtype=bool)
    return held_out_rows(len(sample), float(share), seed, sample.group)
