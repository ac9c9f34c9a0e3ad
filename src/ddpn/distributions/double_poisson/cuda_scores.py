"""P(Z <= y), P(Z > y), the CRPS and the variance of the Double Poisson by one CUDA kernel each, for rows on a GPU.

The same sums as in `tails`, `tables` and `panels`, written out a row (see `cuda_kernel` for why and how): all integers
of a short window, else the tail that y cuts off. The CRPS of a short window is a sum of squares; of a long one it is
the mean distance to y minus half the mean difference of two counts. Threads of a GPU wait for the slowest of 32
neighbours, so many rows are put in the order of their work.
"""

from functools import cache

import torch
from torch import Tensor

from ddpn.distributions.double_poisson import cuda_kernel
from ddpn.distributions.double_poisson.cuda_sums import source

#: From so many rows on, ordering them takes less time than it saves.
_MANY = 2**15

_SIDES = """
template <typename T> void double_poisson_sides(T y, T mu, T gamma, T& cdf, T& survival) {
  const T log_mu = log(mu);
  const T end = table_end<T>(mu, gamma, @DEPTH + (y > mu ? gamma * deviance<T>(y, mu) : 0.0));
  if (end < @TABLE_SIZE - @MARGIN) {
    const T peak = highest<T>(mu, gamma);
    T below = 0.0, above = 0.0;
    const int past = (int)(end + @MARGIN) + 1;
#pragma unroll 1
    for (int i = 0; i < past; ++i) {
      const T w = exp(log_weight_in_table<T>(i, mu, gamma, log_mu) - peak);
      if (i <= y) below += w; else above += w;
    }
    cdf = below / (below + above); survival = above / (below + above);
    return;
  }
  T log_c, mean, dev, mass, distance;
  double_poisson<T>(mu, gamma, log_c, mean, dev);
  const bool lower = y + 0.5 < mean;
  tail<T>(y, mu, gamma, 0.5 * log(gamma) - log_c, lower, mass, distance);
  cdf = lower ? mass : 1.0 - mass; survival = lower ? 1.0 - mass : mass;
}
"""

_CRPS = """
// Sum of F^2 below y and (1 - F)^2 from y on, each from its own end, over the counts from `first` to before `past`.
template <typename T> T sum_of_squares(T y, T mu, T gamma, T log_mu, T first, T past, bool in_table) {
  const T peak = highest<T>(mu, gamma), cut = fmin(fmax(y, first), past);
  T below = 0.0, above = 0.0, squares = 0.0;
#pragma unroll 1
  for (T z = first; z < cut; z += 1.0) {
    below += exp((in_table ? log_weight_in_table<T>((int)z, mu, gamma, log_mu) : log_weight<T>(z, mu, gamma)) - peak);
    squares += below * below;
  }
#pragma unroll 1
  for (T z = past - 1.0; z >= cut; z -= 1.0) {
    squares += above * above;
    above += exp((in_table ? log_weight_in_table<T>((int)z, mu, gamma, log_mu) : log_weight<T>(z, mu, gamma)) - peak);
  }
  const T total = below + above;
  return squares / (total * total) + fmax(first - y, 0.0) + fmax(y - past, 0.0);
}

// E|Z - Z'| / 2 of a wide distribution: by its expansion, or by the sum of F (1 - F) as in `panels`.
template <typename T> T half_mean_difference(T mu, T gamma, T offset, T first, T last) {
  @HALF_DIFFERENCE[]
  @JOINED[]
  @NODE[]
  @WEIGHT[]
  @RUNNING[]
  const T k = gamma * mu, log_mu = log(mu);
  if (k >= @MIN_K) {
    T sum = 0.0, power = 1.0;
#pragma unroll 1
    for (int n = 0; n < 6; ++n) {
      T r = 0.0;
#pragma unroll 1
      for (int j = 10; j >= 0; --j) r = r * gamma + HALF_DIFFERENCE[6 * j + n];
      sum += r * power; power /= k;
    }
    return sqrt(k / 3.141592653589793) / gamma * sum;
  }
  const bool joined = first < @JOIN;
  const T start = sqrt(fmax(first, @JOIN - 0.5)), length = sqrt(last) - start;
  T spread = 0.0, head = 0.0, upto = 0.0, p[@NODES], before[4];
  if (joined) {
#pragma unroll 1
    for (int i = 0; i < @PREFIX_SIZE; ++i) {
      const T q = exp(log_weight_in_table<T>(i, mu, gamma, log_mu) + offset);
      upto += q; head += JOINED[i] * q; spread += JOINED[i] * upto * (1.0 - upto);
      if (i >= @JOIN - 2 && i < @JOIN + 2) before[i - (int)@JOIN + 2] = q;
    }
    const T at = (9.0 * (before[1] + before[2]) - before[0] - before[3]) / 16.0, slope = before[2] - before[1];
    const T curve = (before[0] - before[1] - before[2] + before[3]) / 2.0;
    spread += (1.0 - 2.0 * head) * (curve / 720.0 - at / 12.0) + at * (at / 24.0 + slope / 360.0);
  }
#pragma unroll 1
  for (int i = 0; i < @NODES; ++i) {
    const T t = start + length * NODE[i];
    p[i] = t * exp(log_weight<T>(t * t, mu, gamma) + offset);
  }
#pragma unroll 1
  for (int i = 0; i < @NODES; ++i) {
    const T t = start + length * NODE[i], z = t * t, r = 1.0 / z;
    T cdf = 0.0;
#pragma unroll 1
    for (int j = 0; j < @NODES; ++j) cdf += p[j] * RUNNING[@NODES * j + i];
    const T q = p[i] / t;
    cdf = head + 2.0 * length * cdf + 0.5 * q;
    const T slope = q * (r * (r * (1.0 / 12 - r * r / 120) - 0.5) - gamma * (log(z) - log_mu));
    spread += 2.0 * length * WEIGHT[i] * t * (cdf * (1.0 - cdf) + q * q / 6.0 - slope * slope / 240.0);
  }
  return spread;
}

template <typename T> void double_poisson_crps(T y, T mu, T gamma, T& crps, T& spread) {
  const T log_mu = log(mu), last = table_end<T>(mu, gamma, @DEPTH);
  spread = 0.0;
  if (last < @TABLE_SIZE - @MARGIN) {
    crps = sum_of_squares<T>(y, mu, gamma, log_mu, 0.0, floor(last + @MARGIN) + 1.0, true);
    return;
  }
  const T first = lower_end<T>(mu, gamma);
  if (first >= @JOIN && last - first < @WINDOW_SIZE - @MARGIN - 1.0) {
    const T from = fmax(floor(first) - 1.0, @JOIN);
    crps = sum_of_squares<T>(y, mu, gamma, log_mu, from, from + @WINDOW_SIZE, false);
    return;
  }
  T log_c, mean, dev, mass, distance;
  double_poisson<T>(mu, gamma, log_c, mean, dev);
  const T offset = 0.5 * log(gamma) - log_c;
  const bool lower = y + 0.5 < mean;
  tail<T>(y, mu, gamma, offset, lower, mass, distance);
  spread = half_mean_difference<T>(mu, gamma, offset, first, last);
  crps = fmax((lower ? mean - y : y - mean) + 2.0 * distance - spread, 0.0);
}
"""


_ORDER = """
// The kind of work that a row takes, 0 to 127, so that neighbours in its order take about as long.
template <typename T> void double_poisson_order(T y, T mu, T gamma, T& kind, T& unused) {
  const T last = table_end<T>(mu, gamma, @DEPTH);
  unused = 0.0;
  if (last < @TABLE_SIZE - @MARGIN) { kind = floor(last / 8.0); return; }
  const bool lower = y < mu, narrow = mu < 1.3 * gamma;
  const T end = tail_end<T>(y, mu, gamma, lower), length = fabs(end - y);
  const T tail = lower && y < @TABLE_SIZE ? floor(y / 16.0)
    : (lower ? end : y) < @JOIN ? 8.0 : length < @SHORT_TAIL - 1 ? 9.0 + floor(length / 16.0) : 12.0;
  kind = (narrow ? 32.0 : gamma * mu >= @MIN_K ? 64.0 : 96.0) + tail;
}
"""

_SPREAD = """
template <typename T> void double_poisson_spread(T mu, T gamma, T& mean, T& variance) {
  @JOINED[]
  @NODE[]
  @WEIGHT[]
  const T last = table_end<T>(mu, gamma, @DEPTH), log_mu = log(mu), k = gamma * mu;
  const bool narrow = gamma >= 1.0 && mu < @MIN_VARIANCE * gamma;
  if (!narrow && k >= @MIN_K && mu >= @MIN_MU) {
    @Q[]
    T by_mu = 0.0, twice = 0.0, power = 1.0;
#pragma unroll 1
    for (int n = 1; n <= 6; ++n) {
      power /= k;
      T q = 0.0;
#pragma unroll 1
      for (int j = 5; j >= 0; --j) q = q * gamma + Q[6 * (n - 1) + j];
      by_mu -= n * q * power; twice += n * n * q * power;
    }
    mean = mu + by_mu / gamma; variance = mu / gamma + twice / (gamma * gamma);
    return;
  }
  // Around the more probable neighbour of mu, so that a distribution with almost all its mass there keeps its variance.
  const T low = floor(mu), at_low = log_weight_of_count<T>(low, mu, gamma);
  const T at_high = log_weight_of_count<T>(low + 1.0, mu, gamma);
  const T centre = at_low >= at_high ? low : low + 1.0, peak = fmax(at_low, at_high);
  T total = 0.0, shift = 0.0, square = 0.0;
  const bool table = last < @TABLE_SIZE - @MARGIN;
  if (table || narrow) {
    const T first = table ? 0.0 : fmax(rint(mu) - 10.0, 0.0);
    const int count = table ? (int)(last + @MARGIN) + 1 : 21;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const T log_w = table ? log_weight_in_table<T>(i, mu, gamma, log_mu) : log_weight<T>(first + i, mu, gamma);
      const T w = exp(log_w - peak), gap = first + i - centre;
      total += w; shift += w * gap; square += w * gap * gap;
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < @PREFIX_SIZE; ++i) {
      const T w = JOINED[i] * exp(log_weight_in_table<T>(i, mu, gamma, log_mu) - peak), gap = i - centre;
      total += w; shift += w * gap; square += w * gap * gap;
    }
    const T start = sqrt(@JOIN - 0.5), length = sqrt(last) - start;
#pragma unroll 1
    for (int i = 0; i < @NODES; ++i) {
      const T t = start + length * NODE[i], gap = t * t - centre;
      const T w = 2.0 * length * WEIGHT[i] * t * exp(log_weight<T>(t * t, mu, gamma) - peak);
      total += w; shift += w * gap; square += w * gap * gap;
    }
  }
  shift /= total;
  mean = centre + shift; variance = square / total - shift * shift;
}
"""


@cache
def sides_source() -> str:
    """The kernel: template <typename T> void double_poisson_sides(T y, T mu, T gamma, T& cdf, T& survival)."""
    return source(_SIDES)


@cache
def crps_source() -> str:
    """The kernel: template <typename T> void double_poisson_crps(T y, T mu, T gamma, T& crps, T& spread).

    The second result is half the mean difference of two counts where that was needed, else 0.
    """
    return source(_CRPS)


@cache
def order_source() -> str:
    """The kernel: template <typename T> void double_poisson_order(T y, T mu, T gamma, T& kind, T& unused)."""
    return source(_ORDER)


@cache
def spread_source() -> str:
    """The kernel: template <typename T> void double_poisson_spread(T mu, T gamma, T& mean, T& variance)."""
    return source(_SPREAD)


def _by_kernel(source: str, y: Tensor, mu: Tensor, gamma: Tensor) -> tuple[Tensor, ...] | None:
    """Results of a kernel; many rows are put in the order of their work, with no wait of the host."""
    kernel = cuda_kernel.compiled(source, 3, 2, y.device)
    ordering = cuda_kernel.compiled(order_source(), 3, 2, y.device)
    if kernel is None or ordering is None:
        return None
    if len(y) < _MANY:
        return kernel(y, mu, gamma)
    order = ordering(y, mu, gamma)[0].to(torch.uint8).argsort()
    found = kernel(y[order], mu[order], gamma[order])
    return tuple(torch.empty_like(value).index_copy_(0, order, value) for value in found)


def sides(y: Tensor, mu: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor] | None:
    """P(Z <= y) and P(Z > y) per row, or None where the kernel cannot be compiled. Shape: float64 vectors on a GPU."""
    return _by_kernel(sides_source(), y, mu, gamma)  # type: ignore[return-value]


def crps(y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor | None:
    """The CRPS per row, or None where the kernel cannot be compiled. Shape: float64 vectors on a GPU."""
    found = _by_kernel(crps_source(), y, mu, gamma)
    return None if found is None else found[0]


def mean_variance(mu: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor] | None:
    """Mean and variance per row, or None where the kernel cannot be compiled. Shape: float64 vectors on a GPU."""
    kernel = cuda_kernel.compiled(spread_source(), 2, 2, mu.device)
    return None if kernel is None else kernel(mu, gamma)  # type: ignore[return-value]
