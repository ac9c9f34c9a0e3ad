"""Time the distributions against the paper's table of 2000 entries per row, in one run, on one CPU thread.

    python benchmarks/distributions.py --out benchmarks/results          (CPU, and the GPU where there is one)

The table is built as the paper's code builds it, for all 100,000 rows at once (about 10 GB). "Ratio to blocks" compares
with the same table in blocks of 1,000 rows, which fit in a CPU's cache. Ratios are of the shortest times of several
repetitions within this run. Writes distributions_<device>.json and .md.
"""

from collections.abc import Callable

import recording
import torch
from recording import time_call
from torch import Tensor

from ddpn.distributions import DoublePoisson, Mixture

TABLE = 2000
#: Log-uniform ranges of mu and gamma: hospital days, rented bikes, everything, large counts.
REGIMES = {
    "mixed": ((0.1, 1000.0), (0.1, 10.0)),
    "low counts": ((0.5, 17.0), (0.4, 20.0)),
    "mid counts": ((3.0, 600.0), (0.05, 1.0)),
    "large counts": ((3e3, 4e5), (0.1, 7.0)),
}
#: What the project asks of the first regime.
TARGETS = {"log_prob + gradients": 40, "cdf": 25, "crps": 12, "mixture crps": 8}


def draw_rows(rows: int, regime: str, device: str, members: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    ranges = REGIMES[regime]

    def draw_log_uniform(low: float, high: float) -> Tensor:
        u = torch.rand(rows, generator=generator)
        return torch.exp(torch.lerp(torch.tensor(low).log(), torch.tensor(high).log(), u))

    mu, gamma = (draw_log_uniform(*r) for r in ranges)
    y = torch.poisson(mu, generator=generator)
    if members:
        # The networks of the ensemble disagree on mu by about half a standard deviation, and on gamma by a fifth.
        noise = torch.randn(2, rows, members, generator=generator)
        relative = (0.5 / (mu * gamma).sqrt()).clamp(max=0.3)[:, None]
        mu, gamma = mu[:, None] * torch.exp(relative * noise[0]), gamma[:, None] * torch.exp(0.2 * noise[1])
    return mu.to(device), gamma.to(device), y.to(device)


def table_log_pmf(mu: Tensor, gamma: Tensor) -> Tensor:
    """Return the unnormalised log pmf at 0..1999, which the paper's code evaluates. Shape: (..., 2000)."""
    z = torch.arange(float(TABLE), device=mu.device)
    z_log_z = torch.where(z > 0, z * z.clamp(min=1).log(), 0.0)
    mu, gamma = mu.unsqueeze(-1), gamma.unsqueeze(-1)
    log_h = z_log_z - z - torch.lgamma(z + 1)
    return 0.5 * gamma.log() - gamma * mu + log_h + gamma * (z + z * mu.log() - z_log_z)


def backpropagate_table(mu: Tensor, gamma: Tensor, y: Tensor) -> None:
    log_p = table_log_pmf(mu, gamma)
    value = log_p.gather(-1, y.long().unsqueeze(-1)).squeeze(-1) - log_p.logsumexp(-1)
    value.sum().backward()


def table_cdf(mu: Tensor, gamma: Tensor, y: Tensor) -> Tensor:
    return table_log_pmf(mu, gamma).softmax(-1).cumsum(-1).gather(-1, y.long().unsqueeze(-1))


def table_crps(mu: Tensor, gamma: Tensor, y: Tensor) -> Tensor:
    pmf = table_log_pmf(mu, gamma).softmax(-1)
    cdf = (pmf.mean(1) if mu.dim() == 2 else pmf).cumsum(-1)
    z = torch.arange(float(TABLE), device=mu.device)
    return ((cdf - (z >= y.unsqueeze(-1)).float()) ** 2).sum(-1)


def backpropagate(mu: Tensor, gamma: Tensor, y: Tensor) -> None:
    DoublePoisson(mu, gamma).log_prob(y).sum().backward()


def copy_with_gradients(mu: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    return mu.detach().clone().requires_grad_(), gamma.detach().clone().requires_grad_()


def measure_on_cpu(regime: str, rows: int, repeat: int) -> list[dict]:
    """Time our distributions and the table on the same rows.

    A mixture of five components is measured on a fifth of the rows, so that there are as many tables.
    """
    results = []
    for name in TARGETS:
        members = 5 if name == "mixture crps" else None
        count = rows // 5 if members else rows
        mu, gamma, y = draw_rows(count, regime, "cpu", members)
        ours = time_call(make_call(name, mu, gamma, y), repeat) / count
        at_most = y.clamp(max=TABLE - 1)
        whole = time_call(lambda n=name, m=mu, g=gamma, y=at_most: call_table(n, m, g, y), 1, warm=False) / count
        part = 200 if members else 1000
        few = slice(0, 5 * part)
        rows_of_blocks = mu[few], gamma[few], at_most[few]
        blocks = time_call(lambda n=name, r=rows_of_blocks, p=part: call_table_in_blocks(n, *r, p), repeat)
        result = {
            "what": name,
            "regime": regime,
            "rows": count,
            "us per row": ours * 1e6,
            "table us per row": whole * 1e6,
        }
        results.append(result | {"ratio": whole / ours, "ratio to blocks": blocks / (5 * part) / ours})
    return results


def make_call(name: str, mu: Tensor, gamma: Tensor, y: Tensor) -> Callable[[], object]:
    if name == "log_prob + gradients":
        leaves = copy_with_gradients(mu, gamma)
        return lambda: backpropagate(*leaves, y)
    dist = Mixture(DoublePoisson(mu, gamma)) if mu.dim() == 2 else DoublePoisson(mu, gamma)
    return lambda: (dist.cdf if name == "cdf" else dist.crps)(y)


def call_table(name: str, mu: Tensor, gamma: Tensor, y: Tensor) -> None:
    baseline = {"log_prob + gradients": backpropagate_table, "cdf": table_cdf}.get(name, table_crps)
    baseline(*(copy_with_gradients(mu, gamma) if name.startswith("log_prob") else (mu, gamma)), y)


def call_table_in_blocks(name: str, mu: Tensor, gamma: Tensor, y: Tensor, size: int) -> None:
    for i in range(0, len(y), size):
        part = slice(i, i + size)
        call_table(name, mu[part], gamma[part], y[part])


def measure_on_gpu(rows: int) -> list[dict]:
    """Time `log_prob` with gradients by CUDA events; cdf and CRPS of CUDA tensors are computed on the host."""
    results = []
    for regime in REGIMES:
        mu, gamma, y = draw_rows(rows, regime, "cuda")
        leaves, took = copy_with_gradients(mu, gamma), []
        for _ in range(6):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            backpropagate(*leaves, y)
            end.record()
            torch.cuda.synchronize()
            took.append(start.elapsed_time(end))
        results.append({"what": "log_prob + gradients", "regime": regime, "rows": rows, "ms": min(took[1:])})
    return results


def main() -> None:
    parser = recording.make_parser(__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()

    def measure(device: str) -> list[dict]:
        if device == "cuda":
            return measure_on_gpu(1_000_000)
        return [row for regime in REGIMES for row in measure_on_cpu(regime, args.rows, args.repeat)]

    recording.record("distributions", args, measure, TARGETS)


if __name__ == "__main__":
    main()
