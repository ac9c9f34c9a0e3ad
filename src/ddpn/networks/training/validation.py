"""Validation during training: the mean score of each network on the validation rows."""

import torch
from torch import Tensor

from ddpn.distributions.limits import apply_record_limits
from ddpn.metrics import crps
from ddpn.networks.heads import Head
from ddpn.networks.model import CountModel
from ddpn.networks.training.batches import MemoryBatches, StreamBatches, TensorRows
from ddpn.networks.training.config import Runtime, TrainingConfig
from ddpn.runtime.threads import limit_torch_threads, single_thread

#: Batches of training rows, from memory or from a stream.
AnyBatches = MemoryBatches | StreamBatches


@torch.no_grad()
def compute_mean_scores(
    model: CountModel, batches: AnyBatches, config: TrainingConfig, runtime: Runtime
) -> list[float]:
    """Compute the mean score of each network on validation rows: NLL, CRPS or the training objective.

    `config.score` selects the score, and lower is better. Rows are weighted by their sample weights. Return one number
    per network; NaN is returned as infinity. If several processes share the training, each scores some of the batches,
    and all of them return the scores of all rows. The model is left in evaluation mode.
    """
    model.eval()
    sums = torch.zeros(2, model.n_networks, dtype=torch.float64, device=runtime.device)
    for number, part in enumerate(batches.in_order()):
        if number % runtime.shard.world_size == runtime.shard.rank:
            weight = torch.ones_like(part.y) if part.weight is None else part.weight
            first = part.X[:, 0] if batches.has_separate_rows else part.X
            with runtime.autocast(config.precision), limit_torch_threads(model.estimate_multiply_adds(first)):
                raw = model.raw(part.X)
            with single_thread():  # many small operations
                score = _score_rows(model.head, raw, part, config.score)
            sums[0] += (score.double() * weight).sum(0)
            sums[1] += weight.sum(0)
    runtime.sum_over_processes(sums)
    scores = (sums[0] / sums[1]).tolist()
    return [score if score == score else float("inf") for score in scores]


def _score_rows(head: Head, raw: Tensor, rows: TensorRows, score: str) -> Tensor:
    """Compute the score of each row and network. Shape: `raw` (B, M, n_raw) -> (B, M).

    `score` is "nll", "crps" or "loss", as in `TrainingConfig`. `rows` has the counts, exposures, bounds and recording
    limits of the rows.
    """
    if score == "loss":
        return head.sample_loss(raw, rows)
    dist = apply_record_limits(head(raw, rows.exposure), rows)
    return -dist.log_prob(rows.y) if score == "nll" else crps(dist, rows.y)
