"""Normaliser, moments, cdf and quantiles of the Double Poisson in JAX, for `ddpn.forecasting.numpyro`.

The same mathematics as `ddpn.distributions`, in arrays of fixed shape, so that `jit` and `vmap` apply: every sum over
the counts has 64 terms. Windows of up to 60 counts (gamma D <= 32) are summed count by count. Wider ones take 20 terms
at 0..19, joined to Gauss-Legendre nodes in sqrt(y) (`ddpn.distributions.kernels.placing`). The terms are placed without
gradient, so derivatives of any order are those of the sum.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from ddpn.distributions import expansion
from ddpn.distributions.kernels.placing import CUT, DEPTH, HEAD, JOIN, MARGIN, NODES, TERMS, WEIGHTS
from ddpn.distributions.kernels.scalar import HALF_LOG_TWO_PI, LOG_H

_TERMS = TERMS
_HEAD, _HEAD_WEIGHTS = np.arange(float(len(HEAD))), HEAD
_NODES, _NODE_WEIGHTS = NODES, WEIGHTS
_CUT, _CUT_WEIGHTS = np.arange(-3.0, 5.0), CUT
_SMALL_LOG_H = LOG_H[: JOIN - 1]


class Terms(NamedTuple):
    """A sum over the counts: positions, their weights and log w(y), all (..., 64), and the rest (...)."""

    y: Array
    weight: Array
    log_w: Array
    log_total: Array
    start: Array
    end: Array
    is_short: Array


def log_h(y: Array) -> Array:
    """log(e^-y y^y / y!) for real y >= 15 by Stirling's series, which errs by 1e-11 at most."""
    r = 1.0 / y
    return 0.5 * jnp.log(r) - HALF_LOG_TWO_PI - r * (1 / 12 + r * r * (r * r / 1260 - 1 / 360))


def log_h_of_count(y: Array) -> Array:
    """log(e^-y y^y / y!) for counts below 15, by table, and real y from there on."""
    small = jnp.asarray(_SMALL_LOG_H, y.dtype)[jnp.clip(y, 0, JOIN - 2).astype(int)]
    return jnp.where(y < JOIN - 1, small, log_h(jnp.maximum(y, JOIN - 1)))


def deviance(y: Array, mu: Array) -> Array:
    """D(y; mu) = mu - y + y log(y / mu): near mu by a series in v = (y - mu) / (y + mu), which has no cancellation."""
    v = (y - mu) / (y + mu)
    is_near = jnp.abs(v) < 0.1
    square = jnp.where(is_near, v * v, 0.0)
    tail = jnp.zeros_like(square)
    for power in range(15, 1, -2):
        tail = square * (tail + 1.0 / power)
    near = (y - mu) * v + 2.0 * y * v * tail
    positive = jnp.where(is_near | (y <= 0), mu, y)
    return jnp.where(is_near, near, mu - y + y * jnp.log(positive / mu))


def log_weight(y: Array, mu: Array, gamma: Array) -> Array:
    """log(h(y) exp(-gamma D(y; mu)))."""
    return log_h_of_count(y) - gamma * deviance(y, mu)


def window(mu: Array, gamma: Array) -> tuple[Array, Array]:
    """The y around mu with gamma D(y; mu) = 32: Newton steps from outside, as in `ddpn.distributions.rule`."""
    target, tiny = DEPTH / gamma, jnp.finfo(mu.dtype).tiny

    def step(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, s = ends
        high, slope = s * s, -jnp.log(jnp.maximum(low / mu, tiny))
        s = s - (deviance(high, mu) - target) / jnp.maximum(2.0 * s * jnp.log1p((high - mu) / mu), tiny)
        return low + jnp.maximum(deviance(low, mu) - target, 0.0) / jnp.maximum(slope, tiny), s

    ends = jnp.maximum(jnp.sqrt(mu) - jnp.sqrt(target), 0.0) ** 2, jnp.sqrt(mu) + jnp.sqrt(0.5 * target)
    low, s = lax.fori_loop(0, 3, step, ends)
    return jnp.where(target >= mu, 0.0, low), s * s


def terms(mu: Array, gamma: Array) -> Terms:
    """The terms of a sum over all counts; `log_total` is log c - log(gamma) / 2. mu and gamma have one shape."""
    low, end = window(lax.stop_gradient(mu), lax.stop_gradient(gamma))
    first = jnp.maximum(jnp.floor(low) - MARGIN, 0.0)
    is_short = end - first < _TERMS - MARGIN
    start = jnp.where(is_short, first, jnp.maximum(low, JOIN - 0.5))
    nodes, weights = _panel(start, end)
    head, head_weights = (jnp.broadcast_to(each, (*mu.shape, len(_HEAD))) for each in (_HEAD, _HEAD_WEIGHTS))
    integers = first[..., None] + jnp.arange(float(_TERMS), dtype=mu.dtype)
    y = jnp.where(is_short[..., None], integers, jnp.concatenate([head, nodes], -1).astype(mu.dtype))
    weight = jnp.where(is_short[..., None], 1.0, jnp.concatenate([head_weights, weights], -1).astype(mu.dtype))
    log_w = log_weight(y, mu[..., None], gamma[..., None])
    return Terms(y, weight, log_w, jax.nn.logsumexp(log_w, axis=-1, b=weight), start, end, is_short)


def _panel(start: Array, end: Array) -> tuple[Array, Array]:
    """Nodes and weights of the integral from `start` to `end`, even in sqrt(y); weights of an empty range are 0."""
    low = jnp.sqrt(start)[..., None]
    length = jnp.maximum(jnp.sqrt(end)[..., None] - low, 0.0)
    t = low + length * jnp.asarray(_NODES, low.dtype)
    return t * t, 2.0 * t * length * jnp.asarray(_NODE_WEIGHTS, low.dtype)


def parameters(mu: ArrayLike, gamma: ArrayLike) -> tuple[Array, Array]:
    """mu and gamma as floats of one shape and dtype."""
    dtype = jnp.result_type(float, mu, gamma)
    mu, gamma = jnp.broadcast_arrays(jnp.asarray(mu, dtype), jnp.asarray(gamma, dtype))
    return mu, gamma


@jax.jit
def log_prob(y: ArrayLike, mu: ArrayLike, gamma: ArrayLike) -> Array:
    """log pmf of counts y, which broadcast with mu and gamma."""
    mu, gamma = parameters(mu, gamma)
    return log_weight(jnp.asarray(y, mu.dtype), mu, gamma) + 0.5 * jnp.log(gamma) - log_normalizer(mu, gamma)


def log_normalizer(mu: Array, gamma: Array) -> Array:
    """log c: by the expansion in 1 / (gamma mu) where that applies, as it hardly rounds in float32, else by the sum."""
    applies = (gamma * mu >= expansion.MIN_K) & (mu >= expansion.MIN_MU) & (mu >= expansion.MIN_VARIANCE * gamma)
    g = jnp.where(applies, gamma, 1.0)
    powers = (1.0 / jnp.where(applies, gamma * mu, expansion.MIN_K))[..., None] ** np.arange(1, len(expansion.Q) + 1)
    by_series = (jnp.stack([jnp.polyval(row[::-1], g) for row in expansion.Q], -1) * powers).sum(-1)
    return jnp.where(applies, by_series, 0.5 * jnp.log(gamma) + terms(mu, gamma).log_total)


def masked(log_p: Array, is_count: ArrayLike) -> Array:
    """log pmf, -inf where the value is no count."""
    return jnp.where(is_count, log_p, -jnp.inf)


@jax.jit
def mean_variance(mu: ArrayLike, gamma: ArrayLike) -> tuple[Array, Array]:
    """Mean and variance, around the most probable term: where almost all mass is there, the variance stays accurate."""
    found = terms(*parameters(mu, gamma))
    p = found.weight * jnp.exp(found.log_w - found.log_total[..., None])
    centre = jnp.take_along_axis(found.y, found.log_w.argmax(-1, keepdims=True), -1)
    gap = found.y - centre
    shift = (p * gap).sum(-1)
    return centre[..., 0] + shift, (p * gap * gap).sum(-1) - shift**2


@jax.jit
def cdf(y: ArrayLike, mu: ArrayLike, gamma: ArrayLike) -> Array:
    """P(Z <= y) for numbers y, which broadcast with mu and gamma."""
    mu, gamma = parameters(mu, gamma)
    count, found = jnp.floor(jnp.asarray(y, mu.dtype)), terms(mu, gamma)
    return jnp.where(found.is_short, _sum_to(count, found), _integral_to(count, mu, gamma, found))


def _sum_to(y: Array, found: Terms) -> Array:
    """P(Z <= y) of a short window, or of y <= 19."""
    p = jnp.exp(found.log_w - found.log_total[..., None])
    return jnp.minimum(jnp.where(found.y <= y[..., None], p, 0.0).sum(-1), 1.0)


def _integral_to(y: Array, mu: Array, gamma: Array, found: Terms) -> Array:
    """P(Z <= y) of a wide window: the first counts, the integral up to y + 1/2 and the correction of its end."""
    unit = found.log_total[..., None]
    n = len(_HEAD)
    p = jnp.exp(found.log_w[..., :n] - unit)
    first = jnp.where(found.y[..., :n] <= y[..., None], p, 0.0).sum(-1)
    nodes, weights = _panel(found.start, jnp.clip(y + 0.5, found.start, found.end))
    at = jnp.concatenate([nodes, jnp.maximum(y, JOIN)[..., None] + jnp.asarray(_CUT, nodes.dtype)], -1)
    pmf = jnp.exp(log_h(at) - gamma[..., None] * deviance(at, mu[..., None]) - unit)
    cut_weights = jnp.broadcast_to(jnp.asarray(_CUT_WEIGHTS, nodes.dtype), (*weights.shape[:-1], len(_CUT)))
    beyond = (found.weight[..., :n] * p).sum(-1) + (pmf * jnp.concatenate([weights, cut_weights], -1)).sum(-1)
    return jnp.where(y < JOIN, first, jnp.where(y >= found.end, 1.0, jnp.clip(beyond, 0.0, 1.0)))


@jax.jit
def icdf(q: ArrayLike, mu: ArrayLike, gamma: ArrayLike) -> Array:
    """The smallest integer z with P(Z <= z) >= q: by table, or in a wide window by bisection. q broadcasts."""
    mu, gamma = parameters(*(lax.stop_gradient(each) for each in (mu, gamma)))
    q = lax.stop_gradient(jnp.asarray(q, mu.dtype))
    q = jnp.broadcast_to(q, jnp.broadcast_shapes(q.shape, mu.shape))
    found = terms(mu, gamma)
    below = jnp.cumsum(jnp.exp(found.log_w - found.log_total[..., None]), -1)
    by_table = found.start + (below < q[..., None]).sum(-1)
    last = jnp.broadcast_to(jnp.ceil(found.end) + MARGIN, q.shape)
    high = jnp.where(found.is_short, jnp.minimum(by_table, last), last)
    low = jnp.where(found.is_short, high - 1.0, -1.0)

    def halved(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = jnp.floor(0.5 * (low + high))
        is_enough = _integral_to(middle, mu, gamma, found) >= q
        is_open = high - low > 1.0
        return jnp.where(is_open & ~is_enough, middle, low), jnp.where(is_open & is_enough, middle, high)

    return lax.while_loop(lambda bracket: (bracket[1] - bracket[0] > 1.0).any(), halved, (low, high))[1].astype(int)


def sample(key: Array, shape: tuple[int, ...], mu: ArrayLike, gamma: ArrayLike) -> Array:
    """Draws of a shape that ends with that of the parameters, by inversion.

    Levels stay away from 0 and 1 by more than the rounding of the cdf, which would put some draws at an end of the
    window: by 2e-6 in float32, by 1e-9, three times the error of the quadrature, in float64.
    """
    dtype = parameters(mu, gamma)[0].dtype
    margin = max(16.0 * float(jnp.finfo(dtype).eps), 1e-9)
    return icdf(jax.random.uniform(key, shape, dtype, minval=margin, maxval=1.0 - margin), mu, gamma)
