"""Time the training loop, in one run, on one CPU thread; on a GPU the same fit end to end.

    python benchmarks/training.py --out benchmarks/results          (CPU, and the GPU where there is one)

80,000 rows of 35 columns, batches of 128, five networks [128, 128, 128, 64]. The stacked loop is compared with five
plain torch loops on the same loss: on tensors in memory, with a DataLoader over a TensorDataset, and with one over a
Dataset that reads its rows from a pandas frame, as the paper's code does. Writes training_<device>.json and .md.
"""

import time
from collections.abc import Callable
from itertools import pairwise

import recording
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ddpn.networks.backbones import MLP
from ddpn.networks.heads import Head, make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import Runtime, TrainingConfig, fit
from ddpn.rows.count_rows import CountRows

ROWS, COLUMNS, BATCH, NETWORKS, HIDDEN = 80_000, 35, 128, 5, (128, 128, 128, 64)
#: What the project asks for.
TARGETS = {
    "DataLoader loops / stacked": 8.0,
    "DataLoader loops over a frame / stacked": 8.0,
    "in-memory loops / stacked": 1.8,
    "exact / paper step": 1.5,
}


def simulate_rows(rows: int = ROWS) -> CountRows:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(rows, COLUMNS, generator=generator)
    mean = torch.exp(1.4 + 0.4 * torch.sin(2 * x[:, 0]) + 0.2 * x[:, 1] * x[:, 2])
    return CountRows(x, torch.poisson(mean, generator=generator))


def time_stacked_loop(data: CountRows, objective: str, steps: int, device: str = "cpu") -> tuple[float, CountModel]:
    """Time `steps` steps of all networks at once; return the seconds, with set-up and capture, and the model."""
    head = make_head("double_poisson", objective=objective)
    model = CountModel(MLP(n_in=COLUMNS, hidden=HIDDEN, n_networks=NETWORKS), head, NETWORKS)
    seeds = tuple(range(NETWORKS))
    model.reset(seeds, head.start(data.y.double()))
    per_epoch = len(data) // BATCH
    whole = data.rows(slice(min(steps, per_epoch) * BATCH))
    config = TrainingConfig(
        epochs=max(1, steps // per_epoch), batch_size=BATCH, lr=1e-3, ema=0.0, weight_decay=1e-3, seeds=seeds
    )
    start = time.perf_counter()
    fit(model, whole, None, config, runtime=Runtime(device))
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start, model


def make_plain_network() -> nn.Sequential:
    widths = [COLUMNS, *HIDDEN]
    layers = [m for a, b in pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 2))


def take_plain_step(network: nn.Module, optimizer: torch.optim.Optimizer, head: Head, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    head.loss(network(x), y).mean().backward()
    nn.utils.clip_grad_norm_(network.parameters(), 5.0)
    optimizer.step()


class FrameRows(Dataset):
    """Rows of a pandas frame, one at a time."""

    def __init__(self, data: CountRows) -> None:
        import pandas as pd

        self.x, self.y = pd.DataFrame(data.X.numpy()), pd.Series(data.y.numpy())

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.tensor(self.x.iloc[index].to_numpy()), torch.tensor(self.y.iloc[index])


def time_plain_loop(data: CountRows, objective: str, steps: int, source: str) -> float:
    """Return the seconds for `steps` steps of one network in a plain torch loop."""
    torch.manual_seed(0)
    network, head = make_plain_network(), make_head("double_poisson", objective=objective)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    start = time.perf_counter()
    if source == "memory":
        order = torch.randperm(len(data))
        batches = ((data.X[i], data.y[i]) for i in order.split(BATCH))
    else:
        rows = TensorDataset(data.X, data.y) if source == "tensors" else FrameRows(data)
        batches = iter(DataLoader(rows, BATCH, shuffle=True, drop_last=True))
    for _ in range(steps):
        take_plain_step(network, optimizer, head, *next(batches))
        schedule.step()
    return time.perf_counter() - start


def repeat_and_take_best(call: Callable[[], float], repeat: int) -> float:
    return min(call() for _ in range(repeat))


def measure_on_cpu(steps: int, repeat: int) -> list[dict]:
    data, results = simulate_rows(), []
    time_stacked_loop(data, "exact", 20)  # what is imported and set up on first use
    seconds = {}
    for objective in ("exact", "paper"):
        ours = repeat_and_take_best(lambda o=objective: time_stacked_loop(data, o, steps)[0], repeat) / steps
        seconds[objective] = ours
        results.append({"what": f"stacked, {objective} objective", "ms per step of five networks": ours * 1e3})
        for name, source in (
            ("in-memory loops", "memory"),
            ("DataLoader loops", "tensors"),
            ("DataLoader loops over a frame", "frame"),
        ):
            theirs = (
                repeat_and_take_best(lambda o=objective, s=source: time_plain_loop(data, o, steps, s), repeat)
                / steps
                * NETWORKS
            )
            results.append({"what": f"{name} / stacked", "objective": objective, "ratio": theirs / ours})
    results.append({"what": "exact / paper step", "ratio": seconds["exact"] / seconds["paper"]})
    return results


def measure_on_gpu() -> list[dict]:
    data = simulate_rows()
    time_stacked_loop(data, "exact", 20, "cuda")
    results = []
    for objective in ("exact", "paper"):
        seconds = min(time_stacked_loop(data, objective, 9375, "cuda")[0] for _ in range(2))
        results.append({"what": f"9,375 steps of five, {objective}, end to end", "seconds": seconds})
    return results


def main() -> None:
    parser = recording.make_parser(__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    recording.record(
        "training",
        args,
        lambda d: measure_on_gpu() if d == "cuda" else measure_on_cpu(args.steps, args.repeat),
        TARGETS,
    )


if __name__ == "__main__":
    main()
