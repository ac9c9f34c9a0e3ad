"""Time training steps and `log_prob` on a GPU, in one run.

    python benchmarks/accelerators.py --device cuda --out benchmarks/results

Training steps of five networks (128, 128, 128, 64) on batches of 128 and 1,024 rows of 35 columns, for a Double Poisson
and for the default mixture: captured as a CUDA graph (ddpn/training/capture.py), and one by one; the ratio is what
capturing gains. Then `log_prob` of 1,000,000 Double Poissons with its gradient, by the sums of
ddpn/distributions/rule.py. On a CPU there is no graph; `--device cpu` runs small sizes to show that the command works.
Writes accelerators_<device>.json and .md.
"""

import argparse
import time
from collections.abc import Callable

import recording
import torch

from ddpn.backbones import MLP
from ddpn.distributions import DoublePoisson
from ddpn.heads import make_head
from ddpn.model import CountModel
from ddpn.training import Runtime, Sample, TrainingConfig
from ddpn.training.loop import Training

COLUMNS, BATCHES, MEMBERS, HIDDEN = 35, (128, 1024), 5, (128, 128, 128, 64)
STEPS, ROWS = 200, 1_000_000
#: The sizes of a run that only shows that the command works.
FEW_STEPS, FEW_ROWS = 2, 1000


def seconds(call: Callable[[], object], device: str) -> float:
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    started = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - started


def best(call: Callable[[], object], device: str, repeat: int) -> float:
    call()  # compiles, captures, and sets libraries up
    return min(seconds(call, device) for _ in range(repeat))


def step_seconds(device: str, likelihood: str, batch: int, steps: int, repeat: int, capture: bool) -> float:
    """Seconds per step of all members."""
    generator = torch.Generator().manual_seed(7)
    X = torch.randn(steps * batch, COLUMNS, generator=generator)
    data = Sample(X, torch.poisson(torch.exp(1.4 + 0.4 * X[:, 0]), generator=generator))
    model = CountModel(MLP(n_in=COLUMNS, hidden=HIDDEN, members=MEMBERS), make_head(likelihood), MEMBERS)
    seeds = tuple(range(MEMBERS))
    model.reset(seeds)
    config = TrainingConfig(epochs=repeat + 1, batch_size=batch, lr=1e-3, seeds=seeds)
    training = Training(model.to(device), data, None, config, Runtime(device), capture=capture)
    return best(training.run_epoch, device, repeat) / steps


def log_prob_seconds(device: str, rows: int, repeat: int) -> float:
    """Seconds for log_prob and its gradient, of means from 0.1 to 1,000 and gammas from 0.1 to 10."""
    generator = torch.Generator().manual_seed(7)
    spread = torch.rand(2, rows, generator=generator)
    mu, gamma = (0.1 * 10.0 ** (4 * spread[0])).to(device), (0.1 * 10.0 ** (2 * spread[1])).to(device)
    y = torch.poisson(mu)
    mu.requires_grad_()
    gamma.requires_grad_()
    return best(lambda: torch.autograd.grad(DoublePoisson(mu, gamma).log_prob(y).sum(), [mu, gamma]), device, repeat)


def measured(device: str, repeat: int) -> list[dict]:
    steps, rows = (STEPS, ROWS) if device == "cuda" else (FEW_STEPS, FEW_ROWS)
    results = []
    for likelihood in ("double_poisson", "mixed"):
        for batch in BATCHES:
            captured, plain = (step_seconds(device, likelihood, batch, steps, repeat, way) for way in (True, False))
            results += [
                {"what": f"step of five, {likelihood}, batches of {batch}, captured", "ms": 1e3 * captured},
                {"what": "  one by one / captured", "ms": 1e3 * plain, "ratio": plain / captured},
            ]
    found = log_prob_seconds(device, rows, repeat)
    return [*results, {"what": f"log_prob and gradient of {rows:,} rows", "ms": 1e3 * found}]


def arguments() -> argparse.ArgumentParser:
    parser = recording.parser(__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    return parser


def main() -> None:
    args = arguments().parse_args()
    if args.device is None:
        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    recording.record("accelerators", args, lambda device: measured(device, args.repeat), {})


if __name__ == "__main__":
    main()
