"""Expansions of the Double Poisson for k = gamma mu large, where its window stays clear of 0.

log c = sum_n q_n(gamma) k^-n (n = 1..6), and with it every cumulant of gamma Z: K_r = k + (-1)^r sum_n n^r q_n k^-n.
The half mean difference E|Z - Z'| / 2 = sqrt(k / pi) / gamma * sum_n r_n(gamma) k^-n follows from the cumulants of
Z - Z' by integrating its characteristic function against 1 / (1 - cos t), the kernel of |.| on the integers.
"""

from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.dispatch import constant

#: The expansion starts to be used here: the first term left out is 6e-10 at k = 37, aliasing 2 e^(-2 pi^2 1.3) = 1e-11.
MIN_K, MIN_MU, MIN_VARIANCE = 37.0, 6.0, 1.3

#: Row n - 1: coefficients of gamma^0..gamma^5 in q_n.
Q = np.array(
    [
        [1 / 12, -1 / 12, 0, 0, 0, 0],
        [1 / 12, -1 / 12, 0, 0, 0, 0],
        [241 / 1440, -25 / 144, 1 / 288, 1 / 360, 0, 0],
        [121 / 240, -13 / 24, 1 / 48, 1 / 60, 0, 0],
        [733531 / 362880, -38653 / 17280, 413 / 3456, 5051 / 51840, -1 / 1440, -1 / 1260],
        [917443 / 90720, -49543 / 4320, 647 / 864, 8141 / 12960, -7 / 720, -1 / 84],
    ]
)

# Row n: coefficients of gamma^0, gamma^1, ... in r_n.
_R = (
    "1",
    "-1/48 0 -1/24",
    "101/2560 -1/24 -1/384 0 -1/960",
    "28699/172032 -193/1152 37/36864 -1/576 -1/3072 0 -1/16128",
    "52006829/70778880 -140531/184320 12767/589824 241/46080 -67/1474560 -1/7680 -5/110592 0 -1/184320",
    "330540807721/87199580160 -252380119/61931520 34844971/188743680 144863/1474560 23459/23592960 -5/73728 "
    "-667/24772608 -5/387072 -7/983040 0 -1/1622016",
)


class LogNormalizer(NamedTuple):
    """L = log c and its derivatives in m = log mu and g = log gamma."""

    value: Tensor
    m: Tensor
    g: Tensor
    mm: Tensor
    mg: Tensor
    gg: Tensor
    mmm: Tensor
    mmg: Tensor


@cache
def _q_tables(device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows gamma^0..gamma^5; columns q_n, then gamma q_n', then (gamma d/dgamma)^2 q_n. First row apart."""
    j = np.arange(6.0)
    table = np.concatenate([Q, Q * j, Q * j * j]).T
    return constant(table[0], device), constant(table[1:], device)


@cache
def _q_sums(device: torch.device) -> Tensor:
    """How (q, gamma q', (gamma d/dgamma)^2 q) k^-n add up to each field of `LogNormalizer`: each d/dm brings -n."""
    n = np.arange(1.0, 7.0)
    one, zero = np.ones(6), np.zeros(6)
    columns = {
        "value": (one, zero, zero),
        "m": (-n, zero, zero),
        "g": (-n, one, zero),
        "mm": (n**2, zero, zero),
        "mg": (n**2, -n, zero),
        "gg": (n**2, -2 * n, one),
        "mmm": (-(n**3), zero, zero),
        "mmg": (-(n**3), n**2, zero),
    }
    return constant(np.stack([np.concatenate(columns[f]) for f in LogNormalizer._fields], axis=1), device)


def half_mean_difference_coefficients() -> np.ndarray:
    """Rows gamma^0, gamma^1, ...; columns r_n. Shape: (11, 6)."""
    table = np.zeros((11, len(_R)))
    for n, row in enumerate(_R):
        values = [float(Fraction(x)) for x in row.split()]
        table[: len(values), n] = values
    return table


@cache
def _r_tables(device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows gamma^0, gamma^1, ...; columns r_n. First row apart."""
    table = half_mean_difference_coefficients()
    return constant(table[0], device), constant(table[1:], device)


def applies(mu: Tensor, gamma: Tensor) -> Tensor:
    """Rows whose log c, mean and variance the expansion gives to 1e-9."""
    return (gamma * mu >= MIN_K) & (mu >= MIN_MU) & (mu >= MIN_VARIANCE * gamma)


def _powers(x: Tensor, count: int) -> Tensor:
    """x, x^2, ..., x^count along a new last axis."""
    columns = [x]
    while len(columns) < count:
        columns.append(columns[-1] * x)
    return torch.stack(columns, dim=-1)


def log_normalizer(mu: Tensor, gamma: Tensor, order: int) -> tuple[Tensor, ...]:
    """The fields of `LogNormalizer`, for order 1 its first three only."""
    parts, fields = (2, 3) if order == 1 else (3, 8)
    first, others = (t[..., : 6 * parts] for t in _q_tables(mu.device))
    terms = torch.addmm(first, _powers(gamma, 5), others).unflatten(1, (parts, 6))
    terms *= _powers(1.0 / (gamma * mu), 6).unsqueeze(1)
    return (terms.flatten(1) @ _q_sums(mu.device)[: 6 * parts, :fields]).unbind(-1)


def half_mean_difference(mu: Tensor, gamma: Tensor) -> Tensor:
    """E|Z - Z'| / 2; the first term left out is 23 k^-6, 1e-8 at k = 37."""
    k = gamma * mu
    first, others = _r_tables(mu.device)
    terms = torch.addmm(first, _powers(gamma, 10), others)
    sums = terms[:, 0] + (terms[:, 1:] * _powers(1.0 / k, len(_R) - 1)).sum(-1)
    return (k / torch.pi).sqrt() / gamma * sums
