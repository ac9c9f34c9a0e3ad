"""Time the distributions against the paper's table of 2000 entries per row, in one run, on one CPU thread.

    python benchmarks/distributions.py --out benchmarks/results          (CPU, and the GPU where there is one)

The table is built as that code builds it, for all 100,000 rows at once (about 10 GB); "ratio to blocks" is to the same
table in blocks of 1,000 rows, which stay in a CPU's cache. Writes distributions_<device>.json and .md. Ratios are of
the best of several repetitions within this run.
"""

import time
from collections.abc import Callable

import recording
import torch
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


def draw(rows: int, regime: str, device: str, members: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    ranges = REGIMES[regime]

    def log_uniform(low: float, high: float) -> Tensor:
        u = torch.rand(rows, generator=generator)
        return torch.exp(torch.lerp(torch.tensor(low).log(), torch.tensor(high).log(), u))

    mu, gamma = (log_uniform(*r) for r in ranges)
    y = torch.poisson(mu, generator=generator)
    if members:
        # An ensemble whose members disagree by about half a standard deviation, and on gamma by a fifth.
        noise = torch.randn(2, rows, members, generator=generator)
        relative = (0.5 / (mu * gamma).sqrt()).clamp(max=0.3)[:, None]
        mu, gamma = mu[:, None] * torch.exp(relative * noise[0]), gamma[:, None] * torch.exp(0.2 * noise[1])
    return mu.to(device), gamma.to(device), y.to(device)


def table_log_pmf(mu: Tensor, gamma: Tensor) -> Tensor:
    """What the paper's code evaluates: the unnormalised log pmf at 0..1999. Shape: (..., 2000)."""
    z = torch.arange(float(TABLE), device=mu.device)
    z_log_z = torch.where(z > 0, z * z.clamp(min=1).log(), 0.0)
    mu, gamma = mu.unsqueeze(-1), gamma.unsqueeze(-1)
    log_h = z_log_z - z - torch.lgamma(z + 1)
    return 0.5 * gamma.log() - gamma * mu + log_h + gamma * (z + z * mu.log() - z_log_z)


def table_log_prob(mu: Tensor, gamma: Tensor, y: Tensor) -> None:
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


def seconds(call: Callable[[], object], repeat: int, warm: bool = True) -> float:
    if warm:
        call()
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def gradients(mu: Tensor, gamma: Tensor, y: Tensor) -> None:
    DoublePoisson(mu, gamma).log_prob(y).sum().backward()


def with_grad(mu: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    return mu.detach().clone().requires_grad_(), gamma.detach().clone().requires_grad_()


def cpu_ratios(regime: str, rows: int, repeat: int) -> list[dict]:
    """Ours and the table on the same rows; a mixture of five has a fifth of them, and as many tables."""
    results = []
    for name in TARGETS:
        members = 5 if name == "mixture crps" else None
        count = rows // 5 if members else rows
        mu, gamma, y = draw(count, regime, "cpu", members)
        ours = seconds(ours_of(name, mu, gamma, y), repeat) / count
        at_most = y.clamp(max=TABLE - 1)
        whole = seconds(lambda n=name, m=mu, g=gamma, y=at_most: table_of(n, m, g, y), 1, warm=False) / count
        part = 200 if members else 1000
        few = slice(0, 5 * part)
        rows_of_blocks = mu[few], gamma[few], at_most[few]
        blocks = seconds(lambda n=name, r=rows_of_blocks, p=part: in_blocks(n, *r, p), repeat)
        result = {
            "what": name,
            "regime": regime,
            "rows": count,
            "us per row": ours * 1e6,
            "table us per row": whole * 1e6,
        }
        results.append(result | {"ratio": whole / ours, "ratio to blocks": blocks / (5 * part) / ours})
    return results


def ours_of(name: str, mu: Tensor, gamma: Tensor, y: Tensor) -> Callable[[], object]:
    if name == "log_prob + gradients":
        leaves = with_grad(mu, gamma)
        return lambda: gradients(*leaves, y)
    dist = Mixture(DoublePoisson(mu, gamma)) if mu.dim() == 2 else DoublePoisson(mu, gamma)
    return lambda: (dist.cdf if name == "cdf" else dist.crps)(y)


def table_of(name: str, mu: Tensor, gamma: Tensor, y: Tensor) -> None:
    baseline = {"log_prob + gradients": table_log_prob, "cdf": table_cdf}.get(name, table_crps)
    baseline(*(with_grad(mu, gamma) if name.startswith("log_prob") else (mu, gamma)), y)


def in_blocks(name: str, mu: Tensor, gamma: Tensor, y: Tensor, size: int) -> None:
    for i in range(0, len(y), size):
        part = slice(i, i + size)
        table_of(name, mu[part], gamma[part], y[part])


def small_step(regime: str) -> dict:
    mu, gamma, y = draw(640, regime, "cpu")
    leaves = with_grad(mu, gamma)
    took = seconds(lambda: gradients(*leaves, y), 500)
    return {"what": "640 rows, log_prob + gradients", "regime": regime, "ms": took * 1e3}


def gpu_times(rows: int) -> list[dict]:
    """Device times by CUDA events; synchronisation of the host inside a call is an error."""
    results = []
    for regime in REGIMES:
        mu, gamma, y = draw(rows, regime, "cuda")
        leaves = with_grad(mu, gamma)
        mixture = Mixture(DoublePoisson(*draw(rows // 5, regime, "cuda", 5)[:2]))
        dist, y_small = DoublePoisson(mu, gamma), y[: rows // 5]
        calls: dict[str, tuple[Callable[[], object], bool]] = {
            "log_prob": (lambda dist=dist, y=y: dist.log_prob(y), True),
            "log_prob + gradients": (lambda leaves=leaves, y=y: gradients(*leaves, y), True),
            "cdf": (lambda dist=dist, y=y: dist.cdf(y), True),
            "crps": (lambda dist=dist, y=y: dist.crps(y), True),
            "mixture crps (rows/5 x 5)": (lambda mixture=mixture, y=y_small: mixture.crps(y), False),
        }
        for name, (call, no_sync) in calls.items():
            call()
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error" if no_sync else "default")
            took = []
            for _ in range(5):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                call()
                end.record()
                torch.cuda.set_sync_debug_mode("default")
                torch.cuda.synchronize()
                torch.cuda.set_sync_debug_mode("error" if no_sync else "default")
                took.append(start.elapsed_time(end))
            torch.cuda.set_sync_debug_mode("default")
            results.append({"what": name, "regime": regime, "rows": rows, "ms": min(took), "host waits": not no_sync})
    return results


def gpu_floor(rows: int) -> list[dict]:
    """What the card cannot beat: bytes in and out over its bandwidth, and float64 exponentials over their rate."""
    big = torch.rand(2**27, device="cuda", dtype=torch.float64)

    def event_ms(call: Callable[[], object]) -> float:
        call()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(10):
            call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 10

    copy = event_ms(lambda: big.clone())
    exp = event_ms(lambda: torch.exp(big))
    bytes_a_ms = 2 * big.numel() * 8 / copy
    # log_prob with gradients: y, mu, gamma in, value and two gradients out, all float32.
    floor = rows * 6 * 4 / bytes_a_ms
    return [
        {"what": "copy bandwidth", "TB/s": bytes_a_ms / 1e9},
        {"what": "one pass of exp over 2^27 float64", "ms": exp},
        {"what": "floor, log_prob + gradients (6 float32 per row)", "rows": rows, "ms": floor},
        {"what": "floor, crps (4 float32 per row)", "rows": rows, "ms": rows * 4 * 4 / bytes_a_ms},
    ]


def main() -> None:
    parser = recording.parser(__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()

    def measure(device: str) -> list[dict]:
        if device == "cuda":
            return gpu_times(1_000_000) + gpu_floor(1_000_000)
        # Small steps before and after the rest: a shared machine has slow minutes.
        early = [small_step(regime) for regime in REGIMES]
        ratios = [r for regime in REGIMES for r in cpu_ratios(regime, args.rows, args.repeat)]
        late = [small_step(regime) for regime in REGIMES]
        return ratios + [min(pair, key=lambda r: r["ms"]) for pair in zip(early, late, strict=True)]

    recording.record("distributions", args, measure, TARGETS)


if __name__ == "__main__":
    main()
