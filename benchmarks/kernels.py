"""Time mixtures of 15 components against sixty lines of plain loops, in one run, on one CPU thread.

    python benchmarks/kernels.py --out benchmarks/results

The plain loops (`yardstick`) support two families only. They compute mean, variance, three quantiles and the CRPS of
mixtures of ten Double Poissons and five Negative Binomials by summing over every count. Writes kernels_<device>.json
and .md.
"""

import math

import numba
import numpy as np
import recording
import torch
from recording import time_call
from scipy.special import gammaln

from ddpn.distributions import DoublePoisson, GeneralizedPoisson, Mixture, NegativeBinomial

#: Typical counts, and how many rows are timed.
SIZES = {0.5: 20_000, 5.0: 20_000, 30.0: 10_000, 300.0: 3000, 3000.0: 500}
LEVELS = (0.05, 0.5, 0.95)
_Y = np.arange(65_536.0)
_LOG = np.log(np.maximum(_Y, 1.0))
Y_LOG_Y = _Y * _LOG
LOG_H = Y_LOG_Y - _Y - gammaln(_Y + 1.0)


@numba.njit(cache=True)
def yardstick(mu, gamma, mean, alpha, weights, y, levels, y_log_y, log_h, results):
    terms, mass = np.empty(60_000), np.empty(60_000)
    for i in range(len(y)):
        top = 0
        mass[:4096] = 0.0
        for k in range(mu.shape[1] + mean.shape[1]):
            is_double = k < mu.shape[1]
            j = k - mu.shape[1]
            m = mu[i, k] if is_double else mean[i, j]
            g = gamma[i, k] if is_double else 1.0 / alpha[i, j]
            log_m, start = math.log(m), int(m if is_double else max(m - m / g, 0.0))
            share = m / (m + g)
            reference = log_h[start] - g * (m - start + y_log_y[start] - start * log_m) if is_double else 0.0
            total, w, z = 0.0, 1.0, start
            while True:
                terms[z] = w
                total += w
                if w < 1e-18 * total:
                    break
                z += 1
                if is_double:
                    w = math.exp(log_h[z] - g * (m - z + y_log_y[z] - z * log_m) - reference)
                else:
                    w *= (z - 1 + g) / z * share
            last, w, z = z, 1.0, start
            while z > 0 and w > 1e-18 * total:
                if not is_double:
                    w *= z / ((z - 1 + g) * share)
                z -= 1
                if is_double:
                    w = math.exp(log_h[z] - g * (m - z + y_log_y[z] - z * log_m) - reference)
                terms[z] = w
                total += w
            if last >= 4096 and last > top:
                mass[max(top + 1, 4096) : last + 1] = 0.0
            top = max(top, last)
            for t in range(z, last + 1):
                mass[t] += weights[i, k] / total * terms[t]
        cdf, first, square, score, q = 0.0, 0.0, 0.0, 0.0, 0
        for t in range(top + 1):
            cdf += mass[t]
            first += t * mass[t]
            square += t * t * mass[t]
            gap = cdf - (1.0 if t >= y[i] else 0.0)
            score += gap * gap
            while q < len(levels) and cdf >= levels[q]:
                results[i, 3 + q] = t
                q += 1
        results[i, 0], results[i, 1], results[i, 2] = first, square - first * first, score + max(y[i] - top - 1.0, 0.0)


def draw_components(size: float, rows: int) -> tuple[np.ndarray, ...]:
    """Draw the parameters of components that disagree a little, mixture weights, and counts."""
    rng = np.random.default_rng(7)
    centre = size * np.exp(0.3 * rng.standard_normal((rows, 1)))
    mu = centre * np.exp(0.1 * rng.standard_normal((rows, 10)))
    gamma = np.exp(0.4 * rng.standard_normal((rows, 10)))
    mean = centre * np.exp(0.1 * rng.standard_normal((rows, 5)))
    alpha = 0.1 * np.exp(0.4 * rng.standard_normal((rows, 5)))
    return mu, gamma, mean, alpha, rng.dirichlet(np.full(15, 5.0), rows), rng.poisson(centre[:, 0]).astype(float)


def compare_with_loops(size: float, repeat: int) -> dict:
    rows = SIZES[size]
    mu, gamma, mean, alpha, weights, y = draw_components(size, rows)
    results = np.empty((rows, 6))
    loops = time_call(
        lambda: yardstick(mu, gamma, mean, alpha, weights, y, np.array(LEVELS), Y_LOG_Y, LOG_H, results), repeat
    )
    tensors = [torch.from_numpy(x) for x in (mu, gamma, mean, alpha, weights, y)]
    mixture = Mixture.concatenate([DoublePoisson(*tensors[:2]), NegativeBinomial(*tensors[2:4])], tensors[4])
    levels = torch.tensor(LEVELS, dtype=torch.float64)
    ours = time_call(lambda: mixture.summary(levels, tensors[5]), repeat)
    got = mixture.summary(levels, tensors[5])
    apart = max(
        np.abs(got.mean.numpy() / results[:, 0] - 1.0).max(),
        np.abs(got.variance.numpy() / results[:, 1] - 1.0).max(),
        np.abs(got.crps.numpy() / results[:, 2] - 1.0).max(),
    )
    same = float((got.quantiles.numpy() == results[:, 3:]).mean())
    other = Mixture.concatenate([DoublePoisson(*tensors[:2]), GeneralizedPoisson(*tensors[2:4])], tensors[4])
    third = time_call(lambda: other.summary(levels, tensors[5]), 1)
    return {
        "what": f"typical count {size:g}",
        "yardstick us per row": 1e6 * loops / rows,
        "summary + crps us per row": 1e6 * ours / rows,
        "ratio": ours / loops, "largest relative difference": apart, "equal quantiles": same,
        "with a Generalised Poisson us per row": 1e6 * third / rows,
    }  # fmt: skip


def main() -> None:
    parser = recording.make_parser(__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    args.device = "cpu"
    recording.record("kernels", args, lambda _: [compare_with_loops(size, args.repeat) for size in SIZES], {})


if __name__ == "__main__":
    main()
