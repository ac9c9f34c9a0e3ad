"""The mixed head: a mixture of several count distributions per network, with weights that the network predicts."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import Mixture
from ddpn.networks.heads import HEADS
from ddpn.networks.heads.head import Head, WeightedCounts, promote_precision
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError

#: Two Double Poissons and a Negative Binomial: one for a heavy tail, two for shapes with several modes.
FAMILIES = ("double_poisson", "double_poisson", "negative_binomial")
#: Half the range of the components' first log means around the common one: equal components would stay equal. Smaller
#: ones are for counts that vary so little that components further apart would fit none of them.
_SPREADS = (0.5, 0.2, 0.08, 0.03)
#: Most nats by which the mean loss of the first mixture may exceed that of its best family. Equal counts exceed it with
#: every spread, as no mixture fits them as well as one family (test_means_of_equal_counts_are_these_counts).
_MAX_LOSS_EXCESS = 0.3
#: Logits of the weights are bounded smoothly here, so that no component is lost for good.
LOGIT = 12.0


class MixedHead(Head):
    """Mixture of count distributions: shapes with several modes, many zeros or a heavy tail.

    raw = (the raw outputs of every component in the order of `families`, then one logit per component); the weights are
    the softmax of the logits.

    Parameters
    ----------
    families : sequence of str
        Names in `HEADS`, one per component; components of one family come side by side. The default needs no choice of
        a family: Double Poissons cover under-dispersed counts, the Negative Binomial heavy tails.

    Examples
    --------
    >>> head = MixedHead(families=("poisson", "negative_binomial"))
    >>> head.parameter_names
    ('log mu 1', 'log mu 2', 'log alpha 2', 'logit 1', 'logit 2')
    >>> head(torch.tensor([0.0, 2.0, -9.0, 0.0, 0.0])).mean
    tensor(4.1945)
    """

    name = "mixed"
    n_raw = 9  # of the default families; `__init__` sets that of others
    support = constraints.nonnegative_integer
    has_glm = False
    is_baseline = False
    validation_score = "nll"

    def __init__(self, *, families: Sequence[str] = FAMILIES) -> None:
        if isinstance(families, str) or not families:
            raise ConfigError(f"families must be a list of likelihoods such as {list(FAMILIES)}, got {families!r}.")
        #: Same families side by side, so that each family is one stack.
        self.families = tuple(sorted(families, key=list(families).index))
        for family in self.families:
            head = HEADS.find(family)
            if not head.is_count or head.exposure_is_total or issubclass(head, MixedHead):
                must = "be likelihoods of counts without an end, and no mixtures"
                raise ConfigError(argument="families", must=must, got=repr(family))
        sizes = [HEADS[family].n_raw for family in self.families]
        self.n_raw = sum(sizes) + len(sizes)  # type: ignore[misc]
        #: One head per family, and how many components it has.
        self._stacks = [(HEADS[family](), len(list(group))) for family, group in groupby(self.families)]
        self.parameter_names = (  # type: ignore[misc]
            *(f"{name} {k}" for k, family in enumerate(self.families, 1) for name in HEADS[family].parameter_names),
            *(f"logit {k}" for k in range(1, len(sizes) + 1)),
        )

    @property
    def glm_likelihood(self) -> str | None:
        """First family that has a GLM."""
        return next((family for family in self.families if HEADS[family].has_glm), None)

    def _split_raw(self, raw: Tensor, dim: int) -> tuple[list[Tensor], Tensor]:
        """Split raw outputs into those of each family, with axes k and P in place of `dim`, and log weights (K)."""
        sizes = [k * head.n_raw for head, k in self._stacks]
        *parts, logits = raw.split([*sizes, len(self.families)], dim=dim)
        split = zip(parts, self._stacks, strict=True)
        logits = LOGIT * torch.tanh(logits / LOGIT)
        return [part.unflatten(dim, (k, head.n_raw)) for part, (head, k) in split], logits.log_softmax(dim)

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> Any:
        """Make the mixture of all components."""
        parts, log_weights = self._split_raw(promote_precision(raw), -1)
        wide = None if exposure is None else exposure.unsqueeze(-1)
        stacks = [head.forward(part, wide) for part, (head, _) in zip(parts, self._stacks, strict=True)]
        return Mixture.concatenate(stacks, log_weights.exp(), validate_args=False)

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """Compute -log p(y) from the losses of the components, so that a component's own loss is kept."""
        missing = max(y.dim(), 0 if exposure is None else exposure.dim()) - (raw.dim() - 1)
        # Components come first: over a short last axis, sums take several times as long.
        first = promote_precision(raw)[(None,) * missing].movedim(-1, 0).contiguous()
        parts, log_weights = self._split_raw(first, 0)
        pairs = zip(parts, self._stacks, strict=True)
        losses = torch.cat([head.loss(part.movedim(1, -1), y, exposure) for part, (head, _) in pairs])
        return -torch.logsumexp(log_weights.to(losses.dtype) - losses, dim=0)

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Fit every family without features; spread the log means of the components and give them equal weights."""
        return self.sample_start(CountRows(None, y, weight, exposure))

    def sample_start(self, sample: CountRows[object, Tensor]) -> Tensor:
        """Fit like `start`, also to bounded or censored counts."""
        heads = {family: HEADS[family]() for family in dict.fromkeys(self.families)}
        first = {family: head.sample_start(sample) for family, head in heads.items()}
        rows, size = WeightedCounts(sample), len(self.families)
        with torch.no_grad():
            best = min(rows.mean_loss(head)(first[name]) for name, head in heads.items())
            for spread in _SPREADS:
                raws = [first[family].clone() for family in self.families]
                offsets = torch.linspace(-spread, spread, size, dtype=torch.float64) * (size > 1)
                for raw, offset in zip(raws, offsets, strict=True):
                    raw[0] += offset.item()
                raw = torch.cat([*raws, torch.zeros(size).to(raws[0])])
                if rows.mean_loss(self)(raw) <= best + _MAX_LOSS_EXCESS:
                    break
        return raw
