"""Scores of each member of an ensemble on validation rows."""

import torch
from torch import Tensor

from ddpn.distributions.recording import as_recorded
from ddpn.metrics import crps
from ddpn.networks.model import CountModel
from ddpn.networks.training.batches import DatasetBatches, MemoryBatches
from ddpn.networks.training.runtime import Runtime
from ddpn.runtime.threads import single_thread, threads_for
from ddpn.sample import Sample


@torch.no_grad()
def mean_scores(
    model: CountModel, batches: MemoryBatches | DatasetBatches, score: str, runtime: Runtime
) -> list[float]:
    """Mean proper score per member; never the training objective, which may be a weighted one."""
    model.eval()
    sums = torch.zeros(2, model.members, dtype=torch.float64, device=runtime.device)
    for number, part in enumerate(batches.in_order()):
        if number % runtime.share.world == runtime.share.rank:
            weight = torch.ones_like(part.y) if part.weight is None else part.weight
            sums[0] += (_scores(model, part, batches.own_rows, score, runtime).double() * weight).sum(0)
            sums[1] += weight.sum(0)
    runtime.add_up(sums)
    scores = (sums[0] / sums[1]).tolist()
    return [found if found == found else float("inf") for found in scores]


def _scores(model: CountModel, part: Sample, own_rows: bool, score: str, runtime: Runtime) -> Tensor:
    """Scores per row and member. Shape: (B, M)."""
    with runtime.autocast(), threads_for(model.multiply_adds(part.X[:, 0] if own_rows else part.X)):
        raw = model.raw(part.X)
    with single_thread():  # many small operations
        dist = as_recorded(model.head(raw, part.exposure), part)
        return -dist.log_prob(part.y) if score == "nll" else crps(dist, part.y)
