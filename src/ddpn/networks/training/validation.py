"""Validation during a training: the mean score of each network."""

import torch
from torch import Tensor

from ddpn.distributions.limits import apply_record_limits
from ddpn.metrics import crps
from ddpn.networks.heads import Head
from ddpn.networks.model import CountModel
from ddpn.networks.training.batches import MemoryBatches, StreamBatches, TensorRows
from ddpn.networks.training.config import Runtime, TrainingConfig
from ddpn.runtime.threads import single_thread, threads_for

#: Batches of training rows, from memory or from a stream.
AnyBatches = MemoryBatches | StreamBatches


@torch.no_grad()
def mean_scores(model: CountModel, batches: AnyBatches, config: TrainingConfig, runtime: Runtime) -> list[float]:
    """Return the mean validation score of each network: NLL, CRPS or the training objective ("loss")."""
    model.eval()
    sums = torch.zeros(2, model.n_networks, dtype=torch.float64, device=runtime.device)
    for number, part in enumerate(batches.in_order()):
        if number % runtime.share.world == runtime.share.rank:
            weight = torch.ones_like(part.y) if part.weight is None else part.weight
            first = part.X[:, 0] if batches.has_separate_rows else part.X
            with runtime.autocast(config.precision), threads_for(model.multiply_adds(first)):
                raw = model.raw(part.X)
            with single_thread():  # many small operations
                score = _score_rows(model.head, raw, part, config.score)
            sums[0] += (score.double() * weight).sum(0)
            sums[1] += weight.sum(0)
    runtime.add_up(sums)
    scores = (sums[0] / sums[1]).tolist()
    return [score if score == score else float("inf") for score in scores]


def _score_rows(head: Head, raw: Tensor, rows: TensorRows, score: str) -> Tensor:
    """Score every row and network. Shape: raw (B, M, P) -> (B, M)."""
    if score == "loss":
        return head.sample_loss(raw, rows)
    dist = apply_record_limits(head(raw, rows.exposure), rows)
    return -dist.log_prob(rows.y) if score == "nll" else crps(dist, rows.y)
