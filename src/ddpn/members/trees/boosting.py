"""Boost with LightGBM: a mean in folds that grow in step, and the dispersion of counts around it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.members.member import NotApplicableError
from ddpn.members.trees.booster import Booster
from ddpn.networks.heads import Head, make_head
from ddpn.networks.heads.head import MIN_DISPERSION_CURVATURE
from ddpn.networks.heads.head import minimise_loss as fit_constants
from ddpn.rows.count_rows import CountRows
from ddpn.rows.splits import FOLDS, SMALL_TABLE_ROWS, split_folds
from ddpn.runtime.deadlines import NO_LIMIT, Clock, check_deadline
from ddpn.runtime.threads import single_thread
from ddpn.tables.encoding.steps import choose_columns

#: Columns that a split is chosen from, and that are kept of wider tables with few rows; with more, large trees are not
#: tried.
MAX_COLUMNS = 500
_QUIET = {"verbosity": -1}
#: The most columns that trees always choose from, and the share of more columns that trees of a mean choose from.
_FEW_COLUMNS, _COLUMN_SHARE = 7, 0.7
#: Leaf counts that are tried by default: of (8, 31), (4, 12, 31) and one alone, the best on the development tables.
_LEAVES = (4, 12, 31)
#: Tables above `SMALL_TABLE_ROWS` have larger trees and steps: with smaller ones the boosting of all bikes ended at
#: 1,500 rounds, before the out-of-fold loss was smallest (CRPS 16.3 instead of 15.8).
_MORE_LEAVES, _RATE, _LARGER_RATE = (12, 31, 63), 0.05, 0.1
#: The share of the folds in which numbers of leaves are compared; the others are boosted with the best one only.
_TRIAL_SHARE = 0.5
#: Shares of a limited time left: for each trial, and for the boosting of all folds.
_TRIAL_TIME, FOLDS_TIME = 0.2, 0.7
#: Likelihoods to choose from around a boosted mean: a log mean and the logarithm of a dispersion.
FAMILIES = ("negative_binomial", "double_poisson")
#: The longest step of a leaf of a dispersion, on a log scale and before the learning rate.
_MAX_LEAF_STEP = 2.0
#: The largest absolute constant of a log dispersion, and rows that determine it well enough.
_MAX_CONSTANT, _CONSTANT_ROWS = 20.0, 20_000
#: Leaves of trees of a dispersion with few and with many rows, and the fewest rows to boost it: the spread of counts is
#: much harder to learn than their mean.
_FEWER_LEAVES, _FEW_LEAVES, _MIN_DISPERSION_ROWS = 4, 8, 200
#: Raw outputs are rounded to multiples of this, so that equal ones share a curvature.
_CURVATURE_STEP = 0.1
#: Standard errors of the paired difference by which trees of the dispersion must reduce the out-of-fold loss.
_MIN_STANDARD_ERRORS = 2.0


# Rows -----------------------------------------------------------------------------------------------------------------


class Fold(NamedTuple):
    """Rows that a booster is fitted to, rows that it predicts, and the columns that it uses (None for all)."""

    inner: np.ndarray
    outer: np.ndarray
    chosen: np.ndarray | None = None


class TreeRows(NamedTuple):
    """The data that boosters of the mean are fitted to: inputs, counts per exposure, weights and folds."""

    matrix: np.ndarray
    is_category: np.ndarray
    rate: np.ndarray
    weight: np.ndarray
    folds: list[Fold]
    #: Per column 1 where the mean must not fall, -1 where it must not rise, else 0.
    directions: np.ndarray | None = None

    def with_column(self, values: np.ndarray) -> "TreeRows":
        """Add a column of numbers, which every fold uses."""
        last = self.matrix.shape[1]
        return self._replace(
            matrix=np.column_stack([self.matrix, values]),
            is_category=np.append(self.is_category, False),
            folds=[f if f.chosen is None else f._replace(chosen=np.append(f.chosen, last)) for f in self.folds],
        )


def compute_rates(sample: CountRows) -> tuple[np.ndarray, np.ndarray]:
    """Compute counts per exposure and weights times exposure, the data of an equivalent Poisson likelihood."""
    scale = np.ones_like(sample.y) if sample.exposure is None else sample.exposure
    return sample.y / scale, scale * sample.weight_or_ones


def divide_rows(y: np.ndarray, seed: int, group: np.ndarray | None = None, folds: int = FOLDS) -> list[Fold]:
    """Divide rows into folds, groups kept whole; the rows to fit of every fold must include a count above 0."""
    pairs = [Fold(inner, outer) for inner, outer in split_folds(len(y), folds, seed, group)]
    if len(pairs) < 2:
        raise NotApplicableError("it needs two rows, or two groups of rows, or more")
    if not all(y[fold.inner].any() for fold in pairs):
        raise NotApplicableError("it has too few counts above 0 to leave some of them out")
    return pairs


def choose_fold_columns(folds: list[Fold], matrix: np.ndarray, rate: np.ndarray, weight: np.ndarray) -> list[Fold]:
    """Choose the columns of each fold by its own rows: else out-of-fold means would know the rows they predict."""
    return [
        f._replace(chosen=choose_columns(matrix[f.inner], rate[f.inner], weight[f.inner], MAX_COLUMNS)) for f in folds
    ]


def select_columns(matrix: np.ndarray, chosen: np.ndarray | None) -> np.ndarray:
    """Select the chosen columns; all of them for None."""
    return matrix if chosen is None else matrix[:, chosen]


def min_rows_per_leaf(rows: int) -> int:
    """Return the minimum number of rows of a leaf: 20, or fewer for small tables."""
    return min(20, max(1, rows // 20))


# Boosting -------------------------------------------------------------------------------------------------------------


class Settings(NamedTuple):
    """Settings of boosting: leaves per tree, learning rate, maximum rounds, patience in rounds, and seed.

    Leaves per tree, learning rate, rounds at most, rounds without gain before the end, and seed.
    """

    leaves: int = 31
    rate: float = 0.05
    rounds: int = 1500
    patience: int = 20
    seed: int = 0


class FoldData:
    """LightGBM data sets of each fold, binned once if all folds use the same columns."""

    def __init__(self, rows: TreeRows) -> None:
        import lightgbm

        self._rows, self._lightgbm = rows, lightgbm
        self._whole: Any = self._make_dataset(None) if rows.folds[0].chosen is None else None

    def _make_dataset(self, chosen: np.ndarray | None) -> Any:
        rows = self._rows
        is_category = select_columns(rows.is_category[None], chosen)[0]
        params = {**_QUIET, "feature_pre_filter": False, "min_data_in_bin": min(3, min_rows_per_leaf(len(rows.rate)))}
        # Bins of all rows: they depend on the inputs alone.
        return self._lightgbm.Dataset(
            select_columns(rows.matrix, chosen),
            rows.rate,
            weight=rows.weight,
            categorical_feature=np.flatnonzero(is_category).tolist(),
            params=params,
        ).construct()

    def make_datasets(self, part: Fold) -> tuple[Any, Any]:
        """Make data sets of the rows to fit and of those to predict; None if there are no rows to predict."""
        whole = self._make_dataset(part.chosen) if self._whole is None else self._whole
        outer = whole.subset(np.sort(part.outer)) if len(part.outer) else None
        return whole.subset(np.sort(part.inner)), outer


def _get_column_options(rows: int, columns: int, share: float) -> dict[str, float]:
    """Return the share of columns that a tree, or a split if rows are few, chooses from, as LightGBM options.

    At most MAX_COLUMNS are chosen from. On the development tables 0.7 lowers the CRPS of the trees by 0.4%. With few
    columns every one may be needed.
    """
    if share == 1.0 or not _FEW_COLUMNS < columns <= MAX_COLUMNS:
        return {"feature_fraction_bynode": min(1.0, MAX_COLUMNS / columns)}
    return {"feature_fraction" if rows >= SMALL_TABLE_ROWS else "feature_fraction_bynode": share}


class BoostedTrees:
    """The booster of one fold while it grows; `scores` and `held_out` are its sums for rows inside and outside.

    It boosts a mean, unless it has a custom objective. Rows are in ascending order of their positions.
    """

    def __init__(
        self,
        data: FoldData,
        rows: TreeRows,
        fold: int,
        settings: Settings,
        is_custom: bool = False,
        part: Fold | None = None,
    ) -> None:
        import lightgbm

        part = rows.folds[fold] if part is None else part
        self.inner, self.outer, self.chosen = np.sort(part.inner), np.sort(part.outer), part.chosen
        train, valid = data.make_datasets(part)
        self.columns = rows.matrix.shape[1] if self.chosen is None else len(self.chosen)
        params = {
            **_QUIET,
            "objective": "none" if is_custom else "poisson",
            "metric": "None" if is_custom else "poisson",
            "num_leaves": settings.leaves,
            "learning_rate": settings.rate,
            "max_delta_step": _MAX_LEAF_STEP if is_custom else 0.0,
            "min_data_in_leaf": min_rows_per_leaf(len(self.inner)),
            **_get_column_options(len(rows.rate), self.columns, 1.0 if is_custom else _COLUMN_SHARE),
            "seed": settings.seed + fold,
            "deterministic": True,
            "force_row_wise": True,
            "feature_pre_filter": False,
        }
        if rows.directions is not None and not is_custom:
            directions = select_columns(rows.directions[None], self.chosen)[0].tolist()
            params |= {"monotone_constraints": directions, "monotone_constraints_method": "intermediate"}
        self._booster = lightgbm.Booster(params, train)
        if valid is not None:
            self._booster.add_valid(valid, "held out")
        #: Losses of the held-out rows after each round, for the objective of LightGBM itself.
        self.curve: list[float] = []
        #: Whether no tree could be split any more.
        self.is_finished = False

    def grow(self, derivatives: tuple[np.ndarray, np.ndarray] | None = None) -> None:
        """Add one tree, given first and second derivatives of the losses if they are not LightGBM's."""
        check_deadline()
        if derivatives is None:
            self.is_finished = self._booster.update()
        else:
            self.is_finished = self._booster.update(fobj=lambda scores, rows: derivatives)

    @property
    def rounds(self) -> int:
        """The number of rounds so far."""
        return self._booster.current_iteration()

    def roll_back(self, rounds: int) -> None:
        """Remove the trees after this many rounds. A first tree that could not be split, which adds 0, may stay."""
        for _ in range(self.rounds - rounds):
            self._booster.rollback_one_iter()

    @property
    def loss(self) -> float:
        """Mean Poisson loss of the held-out rows."""
        return self._booster.eval_valid()[0][2]

    @property
    def scores(self) -> np.ndarray:
        """The sum of the trees for the rows that are fitted."""
        return self._capture_scores(self._booster.eval_train)

    @property
    def held_out(self) -> np.ndarray:
        """The sum of the trees for the other rows."""
        return self._capture_scores(self._booster.eval_valid)

    def _capture_scores(self, evaluate: Callable[..., Any]) -> np.ndarray:
        captured = []

        def watch(scores: np.ndarray, _: object) -> tuple[str, float, bool]:
            captured.append(scores.copy())
            return "watched", 0.0, False

        evaluate(watch)
        return captured[0]

    def to_booster(self, rounds: int) -> Booster:
        """Return the first rounds as a booster, without the rows."""
        text = self._booster.model_to_string(num_iteration=rounds) if rounds else ""
        return Booster(text, self.chosen)

    def predict(self, matrix: np.ndarray, rounds: int) -> np.ndarray:
        """Return the raw score of new rows, from the first `rounds` trees."""
        inputs = select_columns(matrix, self.chosen)
        return np.asarray(self._booster.predict(inputs, num_iteration=rounds, raw_score=True))


def boost_until_best(
    step: Callable[[int], float],
    settings: Settings,
    clock: Clock = NO_LIMIT,
    lowest: float = np.inf,
    keep: Callable[[], object] = lambda: None,
) -> int:
    """Boost until the loss falls no more; return the number of the best round, 0 if none improved.

    `step` does one round, given its number from 1, and returns the out-of-fold loss; NaN or infinity ends the boosting.
    `lowest` is the loss before the first round. `keep` is called after each round that is better than all before it.
    """
    best = 0
    for done in range(1, settings.rounds + 1):
        loss = step(done)
        if loss < lowest:
            lowest, best = loss, done
            keep()
        if not np.isfinite(loss) or done - best >= settings.patience or not clock.left:
            break
    return best


# The mean -------------------------------------------------------------------------------------------------------------


def choose_learning_rate(rows: int, rate: float | None = None) -> float:
    """Choose the learning rate; None is the default for this many rows."""
    return (_LARGER_RATE if rows >= SMALL_TABLE_ROWS else _RATE) if rate is None else rate


class MeanFit:
    """Poisson boosting of a rate, with one booster per fold that predicts the rows it was not fitted to.

    All folds grow together and end where the sum of their held-out losses is smallest: one number of rounds that all
    rows choose is less noisy than one per fold, and no fold sees its own rows alone.
    """

    def __init__(self, rows: TreeRows, settings: Settings, data: FoldData | None = None) -> None:
        self.rows, self.settings = rows, settings
        self._data = FoldData(rows) if data is None else data
        self._growing: list[BoostedTrees] = []
        self._best = 0

    @classmethod
    def choose_best(
        cls, rows: TreeRows, settings: Settings, leaves: Sequence[int] | None, clock: Clock = NO_LIMIT
    ) -> "MeanFit":
        """Return the fit with the number of leaves that predicts best, on the folds it was tried on.

        `leaves` are the candidates; None is the default for this many rows. With very many columns, the first is taken.
        A trial that runs out of time is the last one.
        """
        if leaves is None:
            leaves = _MORE_LEAVES if len(rows.rate) >= SMALL_TABLE_ROWS else _LEAVES
        trials: list[MeanFit] = []
        for size in leaves if rows.matrix.shape[1] <= MAX_COLUMNS else leaves[:1]:
            time = clock.part(_TRIAL_TIME * clock.left)
            trials.append(cls(rows, settings._replace(leaves=size)))
            trials[-1].run(max(1, int(_TRIAL_SHARE * len(rows.folds))), time)
            if not time.left:
                break
        return min(trials, key=lambda trial: trial.loss)

    def run(self, folds: int, clock: Clock = NO_LIMIT) -> None:
        """Boost the first folds until the clock ends; boosters that exist already are continued."""
        self._growing += [
            BoostedTrees(self._data, self.rows, k, self.settings) for k in range(len(self._growing), folds)
        ]
        shares = [self.rows.weight[growing.outer].sum() for growing in self._growing]

        def step(done: int) -> float:
            for growing in self._growing:
                if len(growing.curve) < done:
                    growing.grow()
                    growing.curve.append(growing.loss)
            return sum(share * growing.curve[done - 1] for share, growing in zip(shares, self._growing, strict=True))

        self._best = boost_until_best(step, self.settings, clock)

    def to_boosters(self) -> list[Booster]:
        """Return the boosters of the folds that were run, at their best rounds."""
        return [growing.to_booster(self._best) for growing in self._growing]

    def fit_all_rows(self) -> Booster:
        """Fit a booster to all rows, with the number of rounds that was best for the held-out rows."""
        rows, every = self.rows, Fold(np.arange(len(self.rows.rate)), np.arange(0))
        (part,) = choose_fold_columns([every], rows.matrix, rows.rate, rows.weight)
        growing = BoostedTrees(self._data, self.rows, len(self.rows.folds), self.settings, part=part)
        while growing.rounds < self._best and not growing.is_finished:
            growing.grow()
        return growing.to_booster(self._best)

    @property
    def out_of_fold(self) -> np.ndarray:
        """Log rates that the boosters predict for the rows they were not fitted to; NaN for those of further folds."""
        log_rates = np.full(len(self.rows.rate), np.nan)
        for growing in self._growing:
            log_rates[growing.outer] = growing.predict(self.rows.matrix[growing.outer], self._best)
        return log_rates

    @property
    def loss(self) -> float:
        """The sum of the weighted Poisson losses of the held-out rows."""
        raw = self.out_of_fold
        return float(np.nansum(self.rows.weight * (np.exp(raw) - self.rows.rate * raw)))


# The dispersion around it ---------------------------------------------------------------------------------------------


class DispersionFit:
    """The constant of a dispersion around known means, and boosters in folds that add to it.

    Means are out of fold, and so is what the boosters add: a dispersion learned around means that know their rows is
    too small everywhere. The head is one of `FAMILIES`; `log_rate` are logarithms of means per exposure, and `offset`
    is added to the constant log dispersion.
    """

    def __init__(
        self, head: Head, sample: CountRows, seed: int, log_rate: np.ndarray, offset: np.ndarray | None = None
    ) -> None:
        self.head, self.share = head, sample.weight_or_ones / sample.weight_or_ones.mean()
        self.sample = sample.replace(X=None, weight=None).map(torch.from_numpy)
        #: Raw outputs of every row, out of fold.
        self.raw = np.stack([log_rate, np.zeros_like(log_rate) if offset is None else offset], 1)
        self._growing: list[BoostedTrees] = []
        self._curvature: np.ndarray | None = None
        # The constant at which the loss of some rows is smallest.
        some = np.random.default_rng(seed).permutation(len(sample))[:_CONSTANT_ROWS]
        raw, share = torch.from_numpy(self.raw[some]), torch.from_numpy(self.share[some])
        rows, where = self.sample.rows(some), torch.tensor([0.0, 1.0], dtype=torch.float64)

        def loss(constant: Tensor) -> Tensor:
            return share @ head.sample_loss(raw + constant * where, rows) / share.sum()

        with single_thread():
            self.constant = float(
                fit_constants(loss, torch.zeros(1, dtype=torch.float64), [(-_MAX_CONSTANT, _MAX_CONSTANT)])
            )
        self.raw[:, 1] += self.constant

    def losses(self) -> np.ndarray:
        """Compute the weighted out-of-fold loss of every row."""
        with torch.no_grad(), single_thread():
            return self.share * self.head.sample_loss(torch.from_numpy(self.raw), self.sample).numpy()

    def to_boosters(self) -> list[Booster]:
        """Return the boosters of all folds, whose mean is added to the constant; none if the constant is better."""
        return [growing.to_booster(growing.rounds) for growing in self._growing]

    def boost(self, rows: TreeRows, settings: Settings, clock: Clock = NO_LIMIT) -> None:
        """Boost until the out-of-fold loss falls no more; keep the constant if that is not clearly worse."""
        constant, before = self.raw, self.losses()
        data = FoldData(rows)
        self._growing = [BoostedTrees(data, rows, fold, settings, is_custom=True) for fold in range(len(rows.folds))]
        kept, best = [0] * len(self._growing), self.raw.copy()

        def step(done: int) -> float:
            # Curvatures change slowly, take longer than gradients, and only scale the steps.
            self._grow(refresh=done & (done - 1) == 0)
            return float(self.losses().sum())

        def keep() -> None:
            nonlocal kept, best
            kept, best = [growing.rounds for growing in self._growing], self.raw.copy()

        boost_until_best(step, settings, clock, float(before.sum()), keep)
        self.raw = best
        for growing, rounds in zip(self._growing, kept, strict=True):
            growing.roll_back(rounds)
        gain = before - self.losses()
        if gain.sum() <= _MIN_STANDARD_ERRORS * np.sqrt(len(gain)) * gain.std():
            self.raw, self._growing = constant, []

    def _grow(self, refresh: bool) -> None:
        """Add one tree per fold; curvatures are recomputed only on `refresh`."""
        inner = [growing.inner for growing in self._growing]
        raws, after = [self.raw[index] for index in inner], self.raw.copy()
        for growing, raw in zip(self._growing, raws, strict=True):
            raw[:, 1] = self.constant + growing.scores
        every = np.concatenate(inner)
        at, rows, share = (
            torch.from_numpy(np.concatenate(raws)),
            self.sample.rows(every),
            self.share[every],
        )
        with single_thread():
            gradient = np.ascontiguousarray(self.head.gradient(at, rows).numpy()[:, 1]) * share
            if refresh or self._curvature is None:
                self._curvature = self._compute_curvatures(at, rows).numpy()[:, 1] * share
        curvature = np.maximum(self._curvature, MIN_DISPERSION_CURVATURE * share)
        start = 0
        for growing in self._growing:
            part = slice(start, start + len(growing.inner))
            growing.grow((gradient[part], curvature[part]))
            after[growing.outer, 1] = self.constant + growing.held_out
            start = part.stop
        self.raw = after

    def _compute_curvatures(self, raw: Tensor, rows: CountRows[object, Tensor]) -> Tensor:
        """Compute second derivatives.

        Without exposures they are computed once per raw output rounded to 0.1, since they only scale steps.
        """
        if rows.exposure is not None:
            return self.head.curvature(raw, rows)
        # As complex numbers, pairs are sorted many times faster than as rows.
        pairs = torch.view_as_complex((raw / _CURVATURE_STEP).round()).numpy()
        distinct, position = (torch.from_numpy(x) for x in np.unique(pairs, return_inverse=True))
        return self.head.curvature(_CURVATURE_STEP * torch.view_as_real(distinct), rows.rows(slice(0, len(distinct))))[
            position
        ]


def fit_dispersion(
    rows: TreeRows, log_rate: np.ndarray, sample: CountRows, seed: int, clock: Clock = NO_LIMIT
) -> DispersionFit:
    """Fit the dispersion of counts around out-of-fold means: a constant, or boosted if that is clearly better.

    The family is the one with the larger out-of-fold likelihood at its best constant. With exposures, and if the mean
    must be monotone, it is the Negative Binomial, whose mean is the boosted one whatever its dispersion. The log mean
    is a further input of the boosters.
    """
    names = FAMILIES if sample.exposure is None and rows.directions is None else FAMILIES[:1]
    fits = (DispersionFit(make_head(name), sample, seed, log_rate) for name in names)
    best = min(fits, key=lambda fit: fit.losses().sum())
    if len(sample) >= _MIN_DISPERSION_ROWS and rows.matrix.shape[1] <= MAX_COLUMNS and clock.left:
        log_mean = log_rate if sample.exposure is None else log_rate + np.log(sample.exposure)
        leaves = _FEW_LEAVES if len(sample) >= SMALL_TABLE_ROWS else _FEWER_LEAVES
        settings = Settings(leaves, rate=0.1, rounds=300, patience=10, seed=seed)
        best.boost(rows.with_column(log_mean), settings, clock)
    return best
