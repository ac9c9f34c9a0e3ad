"""Gradient boosting for the mean, by scikit-learn, read as a Poisson or as a Negative Binomial."""

import json
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import mean_poisson_deviance
from torch.distributions import Distribution

from ddpn.distributions import NegativeBinomial, Poisson
from ddpn.features.screening import screened
from ddpn.members.member import Member, json_to_bytes
from ddpn.members.trees.dispersion import LOG_ALPHA, most_likely
from ddpn.members.trees.sklearn_engine import (
    TINY,
    early_stopped,
    forget_bins,
    poisson_trees,
    trees_from_bytes,
    trees_to_bytes,
)
from ddpn.members.trees.table import (
    MAX_COLUMNS,
    TreeTable,
    columns_of,
    folds_of,
    least_in_leaf,
    rates,
    used_rows,
    with_columns,
)
from ddpn.sample import Sample
from ddpn.threads import tree_threads_for

#: Leaf counts tried.
_LEAVES = (8, 31)
#: See `trees.table.MAX_COLUMNS`.
_MAX_COLUMNS = MAX_COLUMNS
#: Rounds at most, rounds without gain before boosting stops, and the learning rate.
_ROUNDS, _PATIENCE, _RATE = 500, 20, 0.06
_TREES, _FACTS = "trees.skops", "trees.json"


class BoostedPoisson(Member):
    """`HistGradientBoostingRegressor(loss="poisson")` with its defaults, its mean read as a Poisson.

    Categories are split as such. With exposures it is fitted to rates, weighted by exposure: the same likelihood. Of
    more than 500 columns each booster takes as many as it has rows, those that explain these rows best one by one.
    """

    label = "Poisson gradient boosting"

    def fit(self, train: Sample, validation: Sample | None, seed: int) -> Self:
        matrix, rate, weight = self._prepare(used_rows(train))
        self.chosen = [screened(matrix, rate, weight, _MAX_COLUMNS)]
        matrix = columns_of(matrix, self.chosen[0])
        with tree_threads_for(matrix.size):
            trees = self._booster(self.chosen[0], random_state=seed)
            self.trees = [trees.fit(matrix, rate, sample_weight=weight)]
        forget_bins(self.trees)
        return self

    def _prepare(self, train: Sample) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inputs, counts per exposure, and weights times exposure."""
        self.table = TreeTable()
        return self.table.fit(train.X), *rates(train)

    def _booster(self, chosen: np.ndarray | None, **options: Any) -> HistGradientBoostingRegressor:
        is_category = self.table.is_category
        return poisson_trees(is_category if chosen is None else is_category[chosen], _MAX_COLUMNS, **options)

    def mean(self, X: Any, exposure: np.ndarray | None = None) -> np.ndarray:
        """The predicted mean of every row."""
        matrix = self.table.read(X)
        with tree_threads_for(matrix.size):
            both = zip(self.trees, self.chosen, strict=True)
            rate = np.mean([trees.predict(columns_of(matrix, chosen)) for trees, chosen in both], axis=0)
        return np.maximum(rate if exposure is None else rate * exposure, TINY)

    def distribution(self, X: Any, exposure: np.ndarray | None = None) -> Distribution:
        return Poisson(torch.from_numpy(self.mean(X, exposure)).unsqueeze(1))

    def _numbers(self) -> dict[str, Any]:
        """What the file of facts holds besides the columns."""
        return {}

    def state(self) -> dict[str, bytes]:
        chosen = [None if columns is None else columns.tolist() for columns in self.chosen]
        facts = {**self.table.as_dict(), "chosen": chosen, **self._numbers()}
        return {_TREES: trees_to_bytes(self.trees), _FACTS: json_to_bytes(facts)}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        known, member = json.loads(files[_FACTS]), cls()
        member.trees = trees_from_bytes(files[_TREES], _TREES)
        member.table = TreeTable.from_dict(known)
        member.chosen = [None if columns is None else np.array(columns) for columns in known["chosen"]]
        for name in member._numbers():
            setattr(member, name, known[name])
        return member

    def facts(self) -> dict[str, Any]:
        return {"trees": sum(trees.n_iter_ for trees in self.trees), **self._numbers()}


class BoostedNegativeBinomial(BoostedPoisson):
    """Poisson boosting with early stopping for the mean, read as a Negative Binomial: the usual strong baseline.

    Five folds give out-of-fold means. They choose the number of leaves by Poisson deviance and the one overdispersion
    alpha (variance = mean + alpha mean^2) by maximum likelihood; the boosters of all folds are averaged.
    """

    label = "gradient boosting + Negative Binomial"
    alpha: float = 0.0

    def fit(self, train: Sample, validation: Sample | None, seed: int) -> Self:
        train = used_rows(train)
        matrix, rate, weight = self._prepare(train)
        folds = with_columns(folds_of(train.y, seed), matrix, rate, weight, _MAX_COLUMNS)
        self.chosen = [fold.chosen for fold in folds]
        found = []
        with tree_threads_for(matrix.size):
            # With more columns the larger trees are not tried.
            for leaves in _LEAVES if matrix.shape[1] <= _MAX_COLUMNS else _LEAVES[:1]:
                trees, out_of_fold = [], np.zeros(len(train))
                for number, (inner, outer, chosen) in enumerate(folds):
                    inputs = columns_of(matrix, chosen)
                    booster = self._stopping(chosen, len(inner), leaves, seed + number)
                    fitted = early_stopped(booster, inputs, rate, weight, inner, outer)
                    out_of_fold[outer] = np.maximum(fitted.predict(inputs[outer]), TINY)
                    trees.append(fitted)
                score = mean_poisson_deviance(rate, out_of_fold, sample_weight=weight)
                found.append((score, leaves, trees, out_of_fold))
        _, _, self.trees, out_of_fold = min(found, key=lambda each: each[:2])
        forget_bins(self.trees)
        mean = out_of_fold if train.exposure is None else out_of_fold * train.exposure
        self.alpha = _overdispersion(train.y, mean, train.weight_or_ones)
        return self

    def _stopping(self, chosen: np.ndarray | None, rows: int, leaves: int, seed: int) -> HistGradientBoostingRegressor:
        """Unfitted boosting with early stopping, for so many rows."""
        return self._booster(
            chosen,
            max_leaf_nodes=leaves,
            min_samples_leaf=least_in_leaf(rows),
            learning_rate=_RATE,
            max_iter=_ROUNDS,
            early_stopping=True,
            n_iter_no_change=_PATIENCE,
            random_state=seed,
        )

    def distribution(self, X: Any, exposure: np.ndarray | None = None) -> Distribution:
        mean = torch.from_numpy(self.mean(X, exposure)).unsqueeze(1)
        return NegativeBinomial(mean, torch.full_like(mean, self.alpha))

    def _numbers(self) -> dict[str, Any]:
        return {"alpha": self.alpha}


def _overdispersion(y: np.ndarray, mean: np.ndarray, weight: np.ndarray) -> float:
    """The alpha that makes the counts most likely."""
    counts, means = torch.from_numpy(y), torch.from_numpy(mean)

    def losses(log_alpha: float) -> np.ndarray:
        alpha = torch.full_like(means, float(np.exp(log_alpha)))
        return -NegativeBinomial(means, alpha, validate_args=False).log_prob(counts).numpy()

    return float(np.exp(most_likely(losses, weight, LOG_ALPHA)))
