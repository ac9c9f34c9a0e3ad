"""Subsets of two kinds of input in which a nuisance, such as the length of a text, tells nothing."""

from typing import Any

import torch
from torch import Tensor

from ddpn.errors import ConfigError, InputError
from ddpn.metrics.ood import checked_scores, quantiles
from ddpn.validation import is_integer

#: Bins of pooled quantiles within which both sides are matched.
BINS = 200


def matched(length_in: Any, length_out: Any, seed: int = 0, bins: int = BINS) -> tuple[Tensor, Tensor]:
    """Rows of both sides with nearly the same distribution of a nuisance, such as the length of a text.

    Where outside inputs are shorter than inside ones, a score may tell them by that alone. In each of `bins` bins
    between quantiles of both sides together, equally many rows of either side are taken, as many as the rarer side
    has there, at random. Rows ascend. Shape: two of (rows,), equally long.

    >>> rows_in, rows_out = matched([5, 5, 5, 9, 9, 30], [5, 9, 9, 9, 80])
    >>> len(rows_in), len(rows_out), rows_out[-1].item()
    (3, 3, 3)
    """
    if not is_integer(bins) or bins < 1:
        raise ConfigError(f"bins must be a positive integer, got {bins!r}. Use {BINS} unless you know better.")
    if not is_integer(seed) or seed < 0:
        raise ConfigError(f"seed must be a whole number of at least 0, got {seed!r}. Use 0, say.")
    bins = int(bins)
    inside, outside = checked_scores(length_in=length_in, length_out=length_out)
    levels = torch.arange(1, bins, dtype=torch.float64) / bins
    edges = quantiles(torch.cat([inside, outside]), levels).unique()
    random = torch.Generator().manual_seed(int(seed))
    sides = [_shuffled_by_bin(torch.searchsorted(edges, side), bins, random) for side in (inside, outside)]
    pairs = [(a[: len(b)], b[: len(a)]) for a, b in zip(*sides, strict=True)]
    rows_in, rows_out = (torch.cat(column).sort().values for column in zip(*pairs, strict=True))
    if not len(rows_in):
        raise InputError("length_in and length_out must overlap, got no bin with rows of both. Use fewer bins.")
    return rows_in, rows_out


def _shuffled_by_bin(places: Tensor, bins: int, random: torch.Generator) -> list[Tensor]:
    """The rows of each bin, in random order."""
    order = torch.randperm(len(places), generator=random)
    order = order[places.cpu()[order].argsort(stable=True)]
    return list(order.split(torch.bincount(places.cpu(), minlength=bins).tolist()))
