"""`DDPNRegressor`, the networks of the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ddpn.estimators.estimator import make_named_head
from ddpn.members.folds import Folds
from ddpn.members.member import MemberSpec, Task
from ddpn.members.network_options import (
    NetworkOptions,
    make_paper_options,
)
from ddpn.members.networks import Networks
from ddpn.members.portfolio import make_chosen_specs
from ddpn.networks.heads import Head
from ddpn.pipeline import FitPlan, PipelineOptions
from ddpn.rows.count_range import CountRange
from ddpn.rows.count_rows import CountRows
from ddpn.rows.splits import HELD_OUT_SHARE, MIN_ROWS_TO_VALIDATE, SMALL_TABLE_ROWS, draw_held_out_rows
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.jobs import runs_in_this_process
from ddpn.runtime.validation import check_choice, check_integer, is_number, refuse_old_names
from ddpn.tables.encoding import FeatureEncoder

if TYPE_CHECKING:
    from torch import nn

from ddpn.estimators.network_regressor import NetworkRegressor


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
        Share of rows held out to choose each network's best epoch, unless `fit` is given validation rows. "auto" is a
        tenth if there are at least 200 rows, otherwise none. None holds out no rows.
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
        Warnings of `fit` about target leaks. If there are any, every verdict on the model is "unusable"
        (`Verdict.level`), in `leaderboard`, `verdict` and `report`.
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
        return FeatureEncoder.from_encoder(self._networks.encoder)


def draw_validation_mask(sample: CountRows, share: float | str | None, seed: int) -> np.ndarray:
    """Draw the rows of `sample` to hold out for validation, and return a mask that is True for them.

    `share` is the share of rows to hold out. "auto" holds out a tenth if there are at least 200 rows, otherwise none.
    None holds out no rows. Rows of a group are held out together. `seed` is the seed of the draw. The mask has shape
    (rows,).
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
