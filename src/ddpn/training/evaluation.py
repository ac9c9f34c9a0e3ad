"""Scores of each member of an ensemble on validation rows."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ddpn.metrics import crps
from ddpn.model import CountModel
from ddpn.sample import Sample
from ddpn.threads import single_thread, threads_for
from ddpn.training.batches import DatasetBatches, MemoryBatches
from ddpn.training.runtime import Runtime

#: Rows scored together at least, if there are as many: a score is many small operations however few rows there are.
_TOGETHER = 8192


@torch.no_grad()
def mean_scores(
    model: CountModel, batches: MemoryBatches | DatasetBatches, score: str, runtime: Runtime
) -> list[float]:
    """Mean proper score per member; never the training objective, which may be a weighted one."""
    model.eval()
    sums = torch.zeros(model.members + 1, dtype=torch.float64, device=runtime.device)
    for part in _gathered(_outputs(model, batches, runtime)):
        weight = torch.ones_like(part.y) if part.weight is None else part.weight
        with single_thread():
            sums[:-1] += (_scores(model, part, score).double() * weight).sum(0)
        sums[-1] += weight.sum()
    runtime.add_up(sums)
    scores = (sums[:-1] / sums[-1]).tolist()
    return [found if found == found else float("inf") for found in scores]


def _outputs(model: CountModel, batches: MemoryBatches | DatasetBatches, runtime: Runtime) -> Iterator[Sample]:
    """The rows of this process, with raw outputs in place of inputs."""
    for number, part in enumerate(batches.in_order()):
        if number % runtime.share.world == runtime.share.rank:
            with runtime.autocast(), threads_for(model.multiply_adds(part.X)):
                raw = model.raw(part.X)
            yield part.replace(X=raw)


def _gathered(parts: Iterator[Sample]) -> Iterator[Sample]:
    """The same rows in few parts."""
    kept: list[Sample] = []
    for part in parts:
        kept.append(part)
        if sum(map(len, kept)) >= _TOGETHER:
            yield _joined(kept)
            kept = []
    if kept:
        yield _joined(kept)


def _joined(parts: list[Sample]) -> Sample:
    columns = zip(*((part.X, part.y, part.weight, part.exposure) for part in parts), strict=True)
    return Sample(*(None if column[0] is None else torch.cat(column) for column in columns))


def _scores(model: CountModel, part: Sample, score: str) -> Tensor:
    dist = model.head(part.X, part.exposure)
    return -dist.log_prob(part.y) if score == "nll" else crps(dist, part.y)
