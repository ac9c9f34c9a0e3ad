"""Time what is hand-written for GPUs against the same computation without it, in one run.

    python benchmarks/accelerators.py --device cuda --out benchmarks/results

Training steps of five networks (128, 128, 128, 64) on batches of 128 rows of 35 columns: captured as a CUDA graph
(ddpn/training/capture.py) or one by one, and one by one without the fused kernel of the Double Poisson's normaliser
(cuda_kernel.py). Then `log_prob` of 1,000,000 rows with its gradient, with and without that kernel. Ratios above 1 are
what each gains. On a CPU neither exists; `--device cpu` runs small sizes to show that the command works. Writes
accelerators_<device>.json and .md.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from unittest.mock import patch

import recording
import torch

from ddpn.backbones import MLP
from ddpn.distributions import DoublePoisson
from ddpn.heads import make_head
from ddpn.model import CountModel
from ddpn.training import Runtime, Sample, TrainingConfig
from ddpn.training.loop import Training

COLUMNS, BATCH, MEMBERS, HIDDEN = 35, 128, 5, (128, 128, 128, 64)
STEPS, ROWS = 1000, 1_000_000
#: The sizes of a run that only shows that the command works.
FEW_STEPS, FEW_ROWS = 2, 1000


def kernel() -> ModuleType:
    from ddpn.distributions.double_poisson import cuda_kernel

    return cuda_kernel


@contextmanager
def without_kernel() -> Iterator[None]:
    """As where the kernel cannot be compiled: its caller takes the tensor operations instead."""
    with patch.object(kernel(), "first_moments", lambda *given: None):
        yield


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


def step_seconds(device: str, steps: int, repeat: int, capture: bool) -> float:
    """Seconds per step of all members."""
    generator = torch.Generator().manual_seed(7)
    X = torch.randn(steps * BATCH, COLUMNS, generator=generator)
    data = Sample(X, torch.poisson(torch.exp(1.4 + 0.4 * X[:, 0]), generator=generator))
    model = CountModel(MLP(n_in=COLUMNS, hidden=HIDDEN, members=MEMBERS), make_head("double_poisson"), MEMBERS)
    seeds = tuple(range(MEMBERS))
    model.reset(seeds)
    config = TrainingConfig(epochs=repeat + 1, batch_size=BATCH, lr=1e-3, seeds=seeds)
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
    captured = step_seconds(device, steps, repeat, capture=True)
    plain = step_seconds(device, steps, repeat, capture=False)
    fused = log_prob_seconds(device, rows, repeat)
    with without_kernel():
        unfused_step = step_seconds(device, steps, repeat, capture=False)
        unfused = log_prob_seconds(device, rows, repeat)
    return [
        {"what": "step of five, captured as a graph", "ms": 1e3 * captured},
        {"what": "step of five, one by one / captured", "ms": 1e3 * plain, "ratio": plain / captured},
        {"what": "step of five without / with the kernel", "ms": 1e3 * unfused_step, "ratio": unfused_step / plain},
        {"what": f"log_prob and gradient of {rows:,} rows, with the kernel", "ms": 1e3 * fused},
        {"what": "log_prob and gradient without / with the kernel", "ms": 1e3 * unfused, "ratio": unfused / fused},
    ]


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
