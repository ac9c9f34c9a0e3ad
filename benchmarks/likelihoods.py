"""Time of one training step (loss and its gradient) of every count likelihood, relative to the Double Poisson.

python benchmarks/likelihoods.py
"""

import statistics
import time

import torch

from ddpn.heads import HEADS, Head, make_head

ROWS, MEMBERS, REPEATS = 256, 5, 30
MEANS = (3.0, 50.0, 5000.0)


def seconds(head: Head, mean: float) -> float:
    """The median time of a step for counts with this mean."""
    generator = torch.Generator().manual_seed(0)
    y = torch.poisson(torch.full((ROWS, 1), mean), generator=generator)
    total = torch.full_like(y, float(round(3 * mean)) + 10.0) if head.exposure_is_total else None
    start = head.start(y[:, 0], None, None if total is None else total[:, 0]).float()
    raw = start + 0.1 * torch.randn(ROWS, MEMBERS, head.n_raw, generator=generator)
    taken = []
    for _ in range(REPEATS):
        leaf, began = raw.clone().requires_grad_(), time.process_time()
        head.loss(leaf, y, total).sum().backward()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def main() -> None:
    """Print a table: milliseconds of CPU time, and the ratio to the Double Poisson's."""
    torch.set_num_threads(1)
    heads = [make_head(name) for name, head in HEADS.items() if head.is_count]
    print(f"{'likelihood':24s}" + "".join(f"{f'mean {mean:g}':>18s}" for mean in MEANS))
    base = {mean: seconds(make_head("double_poisson"), mean) for mean in MEANS}
    for head in heads:
        found = {mean: seconds(head, mean) for mean in MEANS}
        cells = (f"{1e3 * found[mean]:8.1f} ms {found[mean] / base[mean]:5.1f}x" for mean in MEANS)
        print(f"{head.name:24s}" + "".join(f"{cell:>18s}" for cell in cells))


if __name__ == "__main__":
    main()
