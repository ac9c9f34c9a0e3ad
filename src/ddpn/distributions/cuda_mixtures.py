"""Quantiles and modes of mixtures of Double Poissons and Negative Binomials by one CUDA kernel, for rows on a GPU.

A thread walks through the counts 0, 1, ... of its row and adds up the pmf of the mixture until all levels are reached,
as `mixture_tables` does for a CPU. Rows whose quantiles are too far away are left to other modules. torch compiles the
text on first use, through NVRTC; where that is not possible, `quantiles` returns None.
"""

import warnings
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy.special import gammaln
from torch import Tensor

from ddpn.distributions.quantiles import LookedUp

#: Counts from 0 on that quantiles are looked for among.
LONGEST = 4096
#: Largest gamma mu (1 + |log mu|): beyond, the rounding of log p is more than 1e-10 of a probability.
_DEEPEST = 1e6
#: What a sum may be off by at a quantile: relatively in a tail, absolutely, and at most. As in `mixture_tables`.
_RELATIVE, _ABSOLUTE, _MOST_OFF = 2e-6, 1e-12, 1e-8
#: The relative difference below which two probabilities count as equal.
_TIE = 1e-12
#: Components up to which a thread keeps them at hand.
_MOST = 256
#: Threads of a block.
_THREADS = 128
#: Rows are put in the order of their means, in so many classes per factor of two: threads of a GPU wait for the slowest
#: of 32 neighbours.
_CLASSES = 8


_KERNEL = """
extern "C" __global__ void mixture_quantiles(
    const double* mu, const double* gamma, const double* offset, const double* weight,
    const double* mean, const double* alpha, const double* share, const double* log_h, const double* y_log_y,
    const double* level, const long long* order, double* count, bool* sure, double* mode, bool* reached,
    int rows, int levels) {
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= rows) return;
  const long long row = order[thread], all = rows;
  double base[@D + 1], slope[@D + 1], power[@D + 1], log_p[@N + 1], size[@N + 1];
  bool usable = true;
  for (int k = 0; k < @D; ++k) {
    const long long at = k * all + row;
    const double m = mu[at], g = gamma[at], log_mu = log(m);
    base[k] = log(weight[at]) + offset[at] - g * m; slope[k] = g * (1.0 + log_mu); power[k] = g;
    usable = usable && (weight[at] <= 0.0 || g * m * (1.0 + fabs(log_mu)) < @DEEPEST);
  }
  for (int k = 0; k < @N; ++k) {
    const long long at = k * all + row;
    log_p[k] = log(share[at]) - log1p(alpha[at] * mean[at]) / alpha[at]; size[k] = 1.0 + alpha[at] * mean[at];
  }
  int left = 0;
  for (int j = 0; j < levels; ++j) {
    const double q = level[row * levels + j];
    const bool inner = q > 0.0 && q < 1.0;
    count[row * levels + j] = inner ? -1.0 : 0.0; sure[row * levels + j] = !inner;
    left += inner;
  }
  // The mode is certain once no more mass is left than the most probable count has.
  double upto = 0.0, best = -1.0, at_best = 0.0;
  bool certain = false;
  for (int y = 0; usable && (left > 0 || !certain) && y < @LONGEST; ++y) {
    const double before = upto, h = log_h[y], y_log = y_log_y[y];
    double p = 0.0;
    for (int k = 0; k < @D; ++k) p += exp(base[k] + h + slope[k] * y - power[k] * y_log);
    for (int k = 0; k < @N; ++k) {
      const long long at = k * all + row;
      p += exp(log_p[k]);
      log_p[k] += log((mean[at] + y * (size[k] - 1.0)) / (size[k] * (y + 1.0)));
    }
    upto += p;
    if (p > best * (1.0 + @TIE)) { best = p; at_best = y; }
    certain = 1.0 - upto < best * (1.0 - @TIE);
    for (int j = 0; j < levels; ++j) {
      const long long at = row * levels + j;
      const double q = level[at];
      if (count[at] < 0.0 && upto >= q) {
        const double slack = @ABSOLUTE + fmin(@RELATIVE * fmin(q, 1.0 - q), @OFF);
        count[at] = y; sure[at] = upto - q > slack && q - before > slack; --left;
      }
    }
  }
  reached[row] = left == 0;
  mode[row] = left == 0 && certain ? at_best : nan("");
}
"""


def source(double_poissons: int, negative_binomials: int) -> str:
    """The text of the kernel for so many components of each family."""
    numbers = {
        "LONGEST": LONGEST,
        "DEEPEST": _DEEPEST,
        "RELATIVE": _RELATIVE,
        "ABSOLUTE": _ABSOLUTE,
        "OFF": _MOST_OFF,
        "TIE": _TIE,
        "D": double_poissons,
        "N": negative_binomials,
    }
    text = _KERNEL
    for name, value in numbers.items():
        text = text.replace(f"@{name}", repr(value))
    return text


@cache
def _compiled(double_poissons: int, negative_binomials: int, device: torch.device) -> Any:
    """The kernel; None, after a warning, where it cannot be compiled."""
    try:
        with torch.cuda.device(device):
            return torch.cuda._compile_kernel(source(double_poissons, negative_binomials), "mixture_quantiles")
    except (RuntimeError, OSError, AttributeError) as error:
        warnings.warn(
            f"The CUDA kernel of mixtures cannot be compiled ({error}): slower operations are used.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


@cache
def constants(device: torch.device) -> tuple[Tensor, Tensor]:
    """log h(y) and y log y of all counts."""
    y = np.arange(float(LONGEST))
    y_log_y = y * np.log(np.maximum(y, 1.0))
    log_h = y_log_y - y - gammaln(y + 1.0)
    return torch.from_numpy(log_h).to(device), torch.from_numpy(y_log_y).to(device)


def parameters(mixture: Any) -> tuple[Tensor, ...] | None:
    """mu, gamma, offset and weight of all Double Poissons, and mean, alpha and weight of all Negative Binomials.

    None where a component is of another family. Shape: (components, rows) each.
    """
    families: dict[str, list[list[Tensor]]] = {"double_poisson": [], "negative_binomial": []}
    rows = len(mixture)
    for stack, k, weight in zip(mixture.stacks, mixture.sizes, mixture.weights.split(mixture.sizes, 1), strict=True):
        known = stack.kernel_parameters()
        if known is None:
            return None
        family, each = known
        families[family].append([x.T.contiguous() for x in (*(x.view(rows, k) for x in each), weight)])
    found: list[Tensor] = []
    for stacks, columns in zip(families.values(), (4, 3), strict=True):
        none = [mixture.weights.new_empty((0, rows))] * columns
        found += [torch.cat(x) for x in zip(*stacks, strict=True)] if stacks else none
    return tuple(found)


def quantiles(mixture: Any, q: Tensor) -> LookedUp | None:
    """The smallest counts y with P(Z <= y) >= q, of rows of a mixture on a GPU.

    None where a component is of another family or the kernel cannot be compiled. Shape: q (rows, n).
    """
    given = parameters(mixture) if len(mixture) > 0 and mixture.weights.shape[1] <= _MOST else None
    kernel = None if given is None else _compiled(len(given[0]), len(given[4]), q.device)
    if given is None or kernel is None:
        return None
    largest = torch.cat([given[0], given[4]]).amax(0)
    order = (_CLASSES * largest.log2()).nan_to_num(0.0).clamp(0.0, 255.0).to(torch.uint8).argsort()
    q = q.double().contiguous()
    found = LookedUp(
        torch.empty_like(q),
        torch.empty_like(q, dtype=torch.bool),
        q.new_empty(len(q)),
        torch.empty(len(q), dtype=torch.bool, device=q.device),
    )
    blocks = -(-len(q) // _THREADS)
    with torch.cuda.device(q.device):
        kernel((blocks, 1, 1), (_THREADS, 1, 1), [*given, *constants(q.device), q, order, *found, *q.shape])
    return found
