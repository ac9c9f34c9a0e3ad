"""What the CUDA kernels of the Double Poisson's scores share: constants, weights, and the tail beyond a count.

The text is that of `tails` and `weights`, written out a row; `source` puts the constants into it.
"""

from functools import cache

import numpy as np
import torch

from ddpn.distributions.double_poisson import cuda_kernel, series
from ddpn.distributions.double_poisson.weights import exact_log_h
from ddpn.distributions.quadrature import JOIN, PREFIX, cut_weights, gauss_legendre, prefix, running_integral
from ddpn.distributions.rows import DEPTH, MARGIN
from ddpn.distributions.special import HALF_LOG_TWO_PI

#: Integers of a table from 0 on, and of one that is clear of 0.
_TABLE, _WINDOW = 128, 32
#: Tails of at most so many integers are summed one by one; nodes of longer ones.
_SHORT_TAIL, _TAIL_NODES = 48, 32
#: Nodes of a window beyond its first integers.
_NODES = 40


@cache
def _texts() -> dict[str, str]:
    """What stands for the names in capitals of the text below."""
    host = torch.device("cpu")
    counts = np.arange(float(_TABLE))
    tail_nodes, tail_weights = (x.numpy() for x in gauss_legendre(_TAIL_NODES, host))
    nodes, weights = (x.numpy() for x in gauss_legendre(_NODES, host))
    arrays = {
        "LOG_H": exact_log_h(counts),
        "Y_LOG_Y": counts * np.log(np.maximum(counts, 1.0)),
        "JOINED": prefix(host)[1].numpy(),
        "CUT": cut_weights(host)[1].numpy(),
        "Q": series.Q,
        "HALF_DIFFERENCE": series.half_mean_difference_coefficients(),
        "RUNNING": running_integral(_NODES, host).numpy(),
        "TAIL_NODE": tail_nodes,
        "TAIL_WEIGHT": tail_weights,
        "NODE": nodes,
        "WEIGHT": weights,
    }
    numbers = {
        "DEPTH": DEPTH,
        "MARGIN": MARGIN,
        "JOIN": float(JOIN),
        "MIN_K": series.MIN_K,
        "MIN_MU": series.MIN_MU,
        "MIN_VARIANCE": series.MIN_VARIANCE,
        "HALF_LOG_TWO_PI": HALF_LOG_TWO_PI,
        "TABLE_SIZE": _TABLE,
        "WINDOW_SIZE": _WINDOW,
        "PREFIX_SIZE": PREFIX,
        "SHORT_TAIL": _SHORT_TAIL,
        "TAIL_NODES": _TAIL_NODES,
        "NODES": _NODES,
    }
    texts = {f"@{name}[]": cuda_kernel.array(name, values) for name, values in arrays.items()}
    return texts | {f"@{name}": repr(value) for name, value in numbers.items()}


def source(entry: str) -> str:
    """The text of a kernel, `entry`, with all that it needs."""
    text = cuda_kernel.source() + _COMMON + entry
    # Longer names first: some are the beginning of others.
    for name, value in sorted(_texts().items(), key=lambda item: -len(item[0])):
        text = text.replace(name, value)
    return text


_COMMON = """
template <typename T> T deviance(T y, T mu) {
  const T x = (y - mu) / mu;
  return y > 0.0 ? mu * ((1.0 + x) * log1p(x) - x) : mu;
}

// The position above mu where gamma D is `depth`, by Newton's method in sqrt(y) from `start`, an upper bound.
template <typename T> T upper_end(T mu, T gamma, T depth, T start, int steps) {
  const T target = depth / gamma, log_mu = log(mu);
  T s = sqrt(start);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const T ratio = log(s * s) - log_mu;
    s -= (mu - target + s * s * (ratio - 1.0)) / (2.0 * s * ratio);
  }
  return s * s;
}

template <typename T> T table_end(T mu, T gamma, T depth) {
  const T s = sqrt(mu) + sqrt(0.5 * depth / gamma);
  return upper_end<T>(mu, gamma, depth, s * s, 3);
}

template <typename T> T lower_end(T mu, T gamma) {
  const T target = @DEPTH / gamma;
  if (target >= mu) return 0.0;
  const T root = fmax(sqrt(mu) - sqrt(target), 0.0);
  T y = root * root;
#pragma unroll 1
  for (int step = 0; step < 3; ++step) {
    const T ratio = log(fmax(y / mu, 1e-300));
    y += fmax(mu - y + y * ratio - target, 0.0) / fmax(-ratio, 1e-300);
  }
  return y;
}

// log h(y) - gamma D(y) at a real y of 12 or more.
template <typename T> T log_weight(T y, T mu, T gamma) {
  const T x = (y - mu) / mu, u = log1p(x), r = 1.0 / y;
  const T log_h = -0.5 * (log(mu) + u) - @HALF_LOG_TWO_PI - r * (1.0 / 12 - r * r * (1.0 / 360 - r * r / 1260));
  return log_h - gamma * mu * ((1.0 + x) * u - x);
}

// The same at a count.
template <typename T> T log_weight_of_count(T y, T mu, T gamma) {
  @LOG_H[]
  return y < @TABLE_SIZE ? LOG_H[(int)y] - gamma * deviance<T>(y, mu) : log_weight<T>(y, mu, gamma);
}

// The better of the counts on either side of mu: no other beats it by more than a nat.
template <typename T> T highest(T mu, T gamma) {
  const T low = floor(mu);
  return fmax(log_weight_of_count<T>(low, mu, gamma), log_weight_of_count<T>(low + 1.0, mu, gamma));
}

// log h(i) - gamma D(i) of i = 0, 1, ... without a logarithm.
template <typename T> T log_weight_in_table(int i, T mu, T gamma, T log_mu) {
  @LOG_H[]
  @Y_LOG_Y[]
  return LOG_H[i] - gamma * (mu + Y_LOG_Y[i] - i * (1.0 + log_mu));
}

// Where the tail beyond y has fallen by DEPTH: two bounds from D being convex, then Newton's method close to 0.
template <typename T> T tail_end(T y, T mu, T gamma, bool lower) {
  const T side = lower ? -1.0 : 1.0;
  const T depth = @DEPTH + gamma * deviance<T>(y, mu);
  const T u = sqrt(depth / (2.0 * gamma * mu));
  const T above = u * fmin(1.0 + u * (u / 12.0 - 1.0 / 6.0), 1.0);
  const T below = -fmin(u * (1.0 + u * (1.0 / 6.0 + 0.6 * u)), 1.0);
  const T root = 1.0 + (lower ? below : above);
  const T from = fmax(y, 1.0), slope = fmax(side * log1p((from - mu) / mu), 1e-300);
  const T end = side * fmin(side * mu * root * root, side * from + @DEPTH / (gamma * slope));
  return !lower && gamma * mu < @MIN_K ? upper_end<T>(mu, gamma, depth, fmax(end, mu), 2) : end;
}

// The mass beyond y, away from the mean, and the sum of |z - y| p(z) over it. `offset` is log(sqrt(gamma) / c).
template <typename T> void tail(T y, T mu, T gamma, T offset, bool lower, T& mass, T& distance) {
  @JOINED[]
  @CUT[]
  @TAIL_NODE[]
  @TAIL_WEIGHT[]
  const T log_mu = log(mu), end = tail_end<T>(y, mu, gamma, lower), side = lower ? -1.0 : 1.0;
  mass = 0.0; distance = 0.0;
  if (lower && y < @TABLE_SIZE) {
#pragma unroll 1
    for (int i = 0; i <= y; ++i) {
      const T p = exp(log_weight_in_table<T>(i, mu, gamma, log_mu) + offset);
      mass += p; distance += (y - i) * p;
    }
    return;
  }
  const bool from_zero = (lower ? end : y) < @JOIN;
  if (!from_zero && side * (end - y) < @SHORT_TAIL - 1) {
    const int count = (int)(side * (end - y)) + 2;
#pragma unroll 1
    for (int i = lower ? 0 : 1; i < count; ++i) {
      const T p = exp(log_weight<T>(fmax(y + side * i, 12.0), mu, gamma) + offset);
      mass += p; distance += i * p;
    }
    return;
  }
  if (from_zero) {
#pragma unroll 1
    for (int i = 0; i < @PREFIX_SIZE; ++i) {
      const T share = JOINED[i] - (!lower && i <= y ? 1.0 : 0.0);
      const T p = share * exp(log_weight_in_table<T>(i, mu, gamma, log_mu) + offset);
      mass += p; distance += side * (i - y) * p;
    }
  }
  // The integral in sqrt(y), and beside a cut at y + 1/2 what the sum over the integers has more than it.
  const T here = y + 0.5, joint = @JOIN - 0.5;
  const T start = sqrt(from_zero ? joint : lower ? end : here), stop = sqrt(lower ? here : end);
  const T length = fmax(stop - start, 0.0);
#pragma unroll 1
  for (int i = 0; i < @TAIL_NODES; ++i) {
    const T t = start + length * TAIL_NODE[i], z = t * t;
    const T p = 2.0 * length * TAIL_WEIGHT[i] * t * exp(log_weight<T>(z, mu, gamma) + offset);
    mass += p; distance += side * (z - y) * p;
  }
  if (from_zero && !lower) return;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    const T p = CUT[i] * exp(log_weight<T>(fmax(y + i - 3, 12.0), mu, gamma) + offset);
    mass -= side * p; distance -= (i - 3) * p;
  }
}
"""
