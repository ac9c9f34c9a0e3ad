"""log c, E[Z] and E[D] of the Double Poisson in one CUDA kernel, for rows on a GPU.

The same formulas as in `series` and `normalizer`, written out a row: tensor operations launch some two hundred kernels
for them, which is all the time a training step has. torch compiles the text on first use (torch.cuda.jiterator, through
NVRTC); where that cannot be had, `first_moments` says so with None.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.double_poisson.series import MIN_K, MIN_MU, MIN_VARIANCE, Q
from ddpn.distributions.double_poisson.weights import exact_log_h
from ddpn.distributions.quadrature import JOIN, PREFIX, gauss_legendre, prefix
from ddpn.distributions.rows import DEPTH

#: As in `normalizer`: nodes of an integral, integers on either side of a narrow distribution, and in a table.
_NODES, _LOCAL, _TABLE = 40, 10, 64


def array(name: str, values: Sequence[float] | np.ndarray) -> str:
    """A constant of a kernel's text."""
    listed = ", ".join(repr(float(v)) for v in np.asarray(values).ravel())
    return f"static const double {name}[] = {{{listed}}};"


@cache
def source() -> str:
    """The kernel: template <typename T> void double_poisson(T mu, T gamma, T& log_c, T& mean, T& dev)."""
    host = torch.device("cpu")
    nodes, weights = (x.tolist() for x in gauss_legendre(_NODES, host))
    counts = np.arange(float(_TABLE))
    arrays = [
        array("Q", Q),
        array("NODE", nodes),
        array("WEIGHT", weights),
        array("JOINED", prefix(host)[1].tolist()),
        array("LOG_H", exact_log_h(counts)),
        array("Y_LOG_Y", counts * np.log(np.maximum(counts, 1.0))),
    ]
    return _KERNEL.replace("ARRAYS", "\n  ".join(arrays))


_KERNEL = (
    """
template <typename T> void double_poisson(T mu, T gamma, T& log_c, T& mean, T& dev) {
  ARRAYS
"""
    f"""
  const double MIN_K = {MIN_K!r}, MIN_MU = {MIN_MU!r}, MIN_VARIANCE = {MIN_VARIANCE!r}, DEPTH = {DEPTH!r};
  const double JOIN = {JOIN - 0.5!r}, HALF_LOG_TWO_PI = 0.9189385332046727, ROOT_TWO_OVER_PI = 0.7978845608028654;
  const int PREFIX = {PREFIX}, NODES = {_NODES}, LOCAL = {_LOCAL}, TABLE = {_TABLE};
"""
    """
  const double k = gamma * mu, log_mu = log(mu), half_log_gamma = 0.5 * log(gamma);
  if (k >= MIN_K && mu >= MIN_MU && mu >= MIN_VARIANCE * gamma) {
    // log c = sum_n q_n(gamma) k^-n; d / d log mu brings -n, d / d log gamma also the derivative of q_n.
    double value = 0.0, by_mu = 0.0, by_gamma = 0.0, power = 1.0;
#pragma unroll 1
    for (int n = 1; n <= 6; ++n) {
      power /= k;
      double q = 0.0, dq = 0.0;
#pragma unroll 1
      for (int j = 5; j >= 0; --j) { q = q * gamma + Q[6 * (n - 1) + j]; dq = dq * gamma + j * Q[6 * (n - 1) + j]; }
      value += q * power; by_mu -= n * q * power; by_gamma += (dq - n * q) * power;
    }
    log_c = value; mean = mu + by_mu / gamma; dev = (0.5 - by_gamma) / gamma;
    return;
  }
  double total = 0.0, sum_y = 0.0, sum_dev = 0.0, peak = 0.0;
  if (gamma >= 1.0 && mu < MIN_VARIANCE * gamma) {
    // Narrow: the integers around mu, relative to the better of its two neighbours, which a first pass looks at.
    const double first = fmax(rint(mu) - LOCAL, 0.0);
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {
#pragma unroll 1
      for (int i = 0; i <= (pass == 0 ? 1 : 2 * LOCAL); ++i) {
        const double y = (pass == 0 ? floor(mu) : first) + i;
        const double x = (y - mu) / mu, r = 1.0 / fmax(y, 1.0);
        const double d = y > 0.0 ? mu * ((1.0 + x) * log1p(x) - x) : mu;
        const double log_h = y < TABLE ? LOG_H[(int)y]
          : -0.5 * log(y) - HALF_LOG_TWO_PI - r * (1.0 / 12 - r * r * (1.0 / 360 - r * r / 1260));
        const double log_w = log_h - gamma * d;
        if (pass == 0) { peak = i == 0 ? log_w : fmax(peak, log_w); continue; }
        const double w = exp(log_w - peak);
        total += w; sum_y += w * y; sum_dev += w * d;
      }
    }
    log_c = half_log_gamma + peak + log(total); mean = sum_y / total; dev = sum_dev / total;
    return;
  }
  // Where the window ends, by Newton in s = sqrt(y) from above.
  const double target = DEPTH / gamma;
  double s = sqrt(mu) + sqrt(0.5 * target);
#pragma unroll 1
  for (int step = 0; step < 4; ++step) {
    const double ratio = log(s * s) - log_mu;
    s -= (mu - target + s * s * (ratio - 1.0)) / (2.0 * s * ratio);
  }
  // All integers where they are few; else 0..15, joined by the weights of a cut to an integral in sqrt(y).
  const bool few = s * s < TABLE - 3;
  const int past = few ? (int)(s * s) + 4 : PREFIX;
#pragma unroll 1
  for (int i = 0; i < past; ++i) {
    const double d = mu + Y_LOG_Y[i] - i * (1.0 + log_mu);
    const double w = (few ? 1.0 : JOINED[i]) * exp(LOG_H[i] - gamma * d);
    total += w; sum_y += w * i; sum_dev += w * d;
  }
  if (!few) {
    const double start = sqrt(JOIN), length = s - start;
    const double scale = ROOT_TWO_OVER_PI * length;
#pragma unroll 1
    for (int i = 0; i < NODES; ++i) {
      const double t = start + length * NODE[i], y = t * t, r = 1.0 / y;
      const double d = mu + y * (log(y) - 1.0 - log_mu);
      const double w = scale * WEIGHT[i] * exp(-gamma * d - r * (1.0 / 12 - r * r * (1.0 / 360 - r * r / 1260)));
      total += w; sum_y += w * y; sum_dev += w * d;
    }
  }
  log_c = half_log_gamma + log(total); mean = sum_y / total; dev = sum_dev / total;
}
"""
)


@cache
def compiled(text: str, inputs: int, outputs: int, device: torch.device) -> Callable[..., tuple[Tensor, ...]] | None:
    """The kernel that the last function of a text is; None, after a warning, where it cannot be compiled."""
    from torch.cuda import jiterator

    try:
        kernel = jiterator._create_multi_output_jit_fn(text, num_outputs=outputs)
        kernel(*torch.ones(inputs, 1, dtype=torch.float64, device=device))
    except RuntimeError as error:
        warnings.warn(
            f"The fused CUDA kernel cannot be compiled ({error}): slower operations are used.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return kernel


def first_moments(mu: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """log c, E[Z] and E[D] per row, or None where the kernel cannot be compiled. Shape: float64 vectors on a GPU."""
    kernel = compiled(source(), 2, 3, mu.device)
    return None if kernel is None else kernel(mu, gamma)  # type: ignore[return-value]
