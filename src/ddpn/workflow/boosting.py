"""Poisson gradient boosting of scikit-learn as a baseline: its mean read as a Poisson law, kept without pickle."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
import skops.io
import torch
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor
from torch.distributions import Distribution

from ddpn.distributions import Poisson
from ddpn.errors import InputError
from ddpn.features.table import Column, read_table

#: Levels of a category that get a code of their own: scikit-learn's trees have 255 bins.
_LEVELS = 254
#: Means are at least this: a Poisson law wants a positive one.
_TINY = 1e-9
#: Every type that the file may hold besides numbers, text and scikit-learn's own estimators.
TRUSTED = [
    "functools.partial",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.utils.validation.check_array",
]
_MODEL, _LEVELS_FILE = "boosting.skops", "boosting.json"


class _Names(BaseEstimator):
    """Holds the columns' names and number while a table is read."""


@dataclass(frozen=True)
class BoostedTrees:
    """scikit-learn's `HistGradientBoostingRegressor(loss="poisson")` with its defaults; categories are split as such.

    With exposures it is fitted to rates, weighted by exposure, which is the same likelihood.
    """

    trees: HistGradientBoostingRegressor
    names: tuple[str, ...]
    levels: tuple[tuple[str, ...] | None, ...]

    @classmethod
    def fit(cls, X: Any, y: np.ndarray, weight: np.ndarray | None, exposure: np.ndarray | None, seed: int = 0) -> Self:
        columns = read_table(_Names(), X, reset=True)
        levels = tuple(_frequent(column) if column.kind == "category" else None for column in columns)
        scale = np.ones_like(y) if exposure is None else exposure
        trees = HistGradientBoostingRegressor(
            loss="poisson", categorical_features=[known is not None for known in levels], random_state=seed
        )
        each = scale if weight is None else scale * weight
        trees.fit(_matrix(columns, levels), y / scale, sample_weight=each)
        return cls(trees, tuple(column.name for column in columns), levels)

    def law(self, X: Any, exposure: np.ndarray | None) -> Distribution:
        names = _Names()
        names.feature_names_in_, names.n_features_in_ = np.array(self.names, dtype=object), len(self.names)
        mean = self.trees.predict(_matrix(read_table(names, X, reset=False), self.levels))
        return Poisson(torch.from_numpy(np.maximum(mean if exposure is None else mean * exposure, _TINY)))

    def save(self, folder: Path) -> None:
        archive = skops.io.dumps(self.trees)
        (folder / _MODEL).write_bytes(archive)
        about = {"names": self.names, "levels": self.levels, "sha256": hashlib.sha256(archive).hexdigest()}
        (folder / _LEVELS_FILE).write_text(json.dumps(about), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The same again; nothing in its files is executed."""
        try:
            about = json.loads((folder / _LEVELS_FILE).read_text(encoding="utf-8"))
            archive = (folder / _MODEL).read_bytes()
            if hashlib.sha256(archive).hexdigest() != about["sha256"]:
                raise ValueError("a wrong checksum")
            trees = skops.io.loads(archive, trusted=TRUSTED)
        except (OSError, BadZipFile, AttributeError, ImportError, KeyError, TypeError, ValueError) as error:
            where = folder / _MODEL
            raise InputError(f"{where} must be as it was saved, got {error}. Fit the model again.") from None
        levels = (None if known is None else tuple(known) for known in about["levels"])
        return cls(trees, tuple(about["names"]), tuple(levels))


def _frequent(column: Column) -> tuple[str, ...]:
    """Levels that occur, most frequent first; equal ones in alphabetical order."""
    found = np.bincount(column.values[column.values >= 0], minlength=len(column.levels))
    order = sorted(range(len(found)), key=lambda code: (-found[code], column.levels[code]))
    return tuple(column.levels[code] for code in order if found[code])[:_LEVELS]


def _matrix(columns: list[Column], levels: tuple[tuple[str, ...] | None, ...]) -> np.ndarray:
    """Numbers as they are and codes of levels; a level without a code is missing."""
    return np.column_stack(
        [
            column.values if known is None else _codes(column, known)
            for column, known in zip(columns, levels, strict=True)
        ]
    )


def _codes(column: Column, known: tuple[str, ...]) -> np.ndarray:
    place = {level: float(code) for code, level in enumerate(known)}
    # The last entry serves code -1.
    target = np.array([*(place.get(level, np.nan) for level in column.levels), np.nan])
    return target[column.values]
