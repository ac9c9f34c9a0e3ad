"""Typical rows to compare with, drawn from the summary of the training rows: a model folder keeps no row itself."""

from collections.abc import Sequence

import numpy as np

from ddpn.calibration.columns import ColumnProfile, hashed, key_shares
from ddpn.predictor import Predictor
from ddpn.runtime.errors import InputError
from ddpn.tables.encoding.table import Column


def typical_rows(
    predictor: Predictor, names: Sequence[str], levels: Sequence[Sequence[str]], size: int
) -> list[Column]:
    """Columns whose values are distributed as in the training, each drawn on its own.

    Parameters
    ----------
    predictor : Predictor
        The model, with a summary of its training rows.
    names : sequence of str
        The columns.
    levels : sequence of sequences of str
        The levels of each column that are known by name.
    size : int
        How many rows.
    """
    if predictor.profile is None:
        raise InputError("The model has no summary of its training rows to compare with, so that it explains no rows.")
    rng = np.random.default_rng(0)
    columns = zip(names, predictor.profile.columns, levels, strict=True)
    return [_drawn(name, profile, tuple(own), size, rng) for name, profile, own in columns]


def _drawn(name: str, profile: ColumnProfile, levels: tuple[str, ...], size: int, rng: np.random.Generator) -> Column:
    # Evenly spread ranks, in a random order: as many values from every part of the distribution.
    ranks = rng.permutation((np.arange(size) + 0.5) / size)
    missing = rng.permutation((np.arange(size) + 0.5) / size) < profile.missing_share
    if profile.kind == "category":
        place = profile.place(hashed(levels)) if levels else np.empty(0, dtype=np.int64)
        levels = tuple(level for level, at in zip(levels, place.tolist(), strict=True) if at >= 0)
        if not levels:
            return Column(name, "category", np.full(size, -1), ())
        shares = key_shares(profile)[place[place >= 0]]
        codes = np.searchsorted(np.cumsum(shares / shares.sum())[:-1], ranks)
        return Column(name, "category", np.where(missing, -1, codes), levels)
    if not len(profile.edges):
        return Column(name, profile.kind, np.full(size, np.nan))
    if len(profile.keys):
        known, shares = profile.keys.view(np.float64), key_shares(profile)
        values = known[np.searchsorted(np.cumsum(shares)[:-1], ranks)]
    else:
        from scipy.special import ndtri

        values = np.interp(ndtri(ranks), profile.normal, profile.edges)
    return Column(name, profile.kind, np.where(missing, np.nan, values))


def joined(first: Column, second: Column) -> Column:
    """One column below another of the same kind."""
    if first.kind != "category":
        return Column(first.name, first.kind, np.concatenate([first.values, second.values.astype(np.float64)]))
    index = {level: code for code, level in enumerate(first.levels)}
    # The last entry serves code -1.
    target = np.array([*(index.setdefault(level, len(index)) for level in second.levels), -1], dtype=np.int64)
    return Column(first.name, "category", np.concatenate([first.values, target[second.values]]), tuple(index))
