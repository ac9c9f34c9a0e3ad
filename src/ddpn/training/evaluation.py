"""How good the members of an ensemble are on rows they do not learn from."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ddpn.metrics import crps
from ddpn.model import CountModel
from ddpn.training.batches import DatasetBatches, MemoryBatches, Rows
from ddpn.training.runtime import Runtime

#: Rows that are scored together at least, if there are as many: a score is many small operations however few there are.
_TOGETHER = 8192


@torch.no_grad()
def mean_scores(
    model: CountModel, batches: MemoryBatches | DatasetBatches, score: str, runtime: Runtime
) -> list[float]:
    """Mean proper score a member; never the training objective, which a weight on it can bend."""
    model.eval()
    sums = torch.zeros(model.members + 1, dtype=torch.float64, device=runtime.device)
    for part in _gathered(_outputs(model, batches, runtime)):
        weight = torch.ones_like(part.y) if part.weight is None else part.weight
        sums[:-1] += (_scores(model, part, score).double() * weight).sum(0)
        sums[-1] += weight.sum()
    runtime.add_up(sums)
    scores = (sums[:-1] / sums[-1]).tolist()
    return [found if found == found else float("inf") for found in scores]


def _outputs(model: CountModel, batches: MemoryBatches | DatasetBatches, runtime: Runtime) -> Iterator[Rows]:
    """This process's share of the rows, raw outputs in place of inputs."""
    for number, part in enumerate(batches.in_order()):
        if number % runtime.share.world == runtime.share.rank:
            with runtime.autocast():
                raw = model.raw(part.x)
            yield Rows(raw, *part[1:])


def _gathered(parts: Iterator[Rows]) -> Iterator[Rows]:
    """The same rows in few parts."""
    kept: list[Rows] = []
    for part in parts:
        kept.append(part)
        if sum(map(len, kept)) >= _TOGETHER:
            yield _joined(kept)
            kept = []
    if kept:
        yield _joined(kept)


def _joined(parts: list[Rows]) -> Rows:
    columns = zip(*parts, strict=True)
    return Rows(*(None if column[0] is None else torch.cat(column) for column in columns))  # type: ignore[arg-type]


def _scores(model: CountModel, part: Rows, score: str) -> Tensor:
    law = model.head(part.x, part.exposure)
    return -law.log_prob(part.y) if score == "nll" else crps(law, part.y)
