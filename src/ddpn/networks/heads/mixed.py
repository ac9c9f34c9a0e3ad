"""The mixed head: in every row, a mixture of count distributions with weights that the network predicts."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import Mixture
from ddpn.networks.heads import HEADS
from ddpn.networks.heads.constant_fit import WeightedCounts
from ddpn.networks.heads.head import Head, promote_precision
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError

#: Two Double Poissons for shapes with several modes, and a Negative Binomial for heavy tails.
FAMILIES = ("double_poisson", "double_poisson", "negative_binomial")
#: Half-widths of the range of the components' initial log means, tried in turn. They must differ, because equal
#: components would stay equal. Small ones are for counts that vary so little that more distant components would fit
#: none of them.
_SPREADS = (0.5, 0.2, 0.08, 0.03)
#: The largest difference, in nats, of the mean loss of the initial mixture and that of its best family. If all counts
#: are equal, no spread achieves it (test_means_of_equal_counts_are_these_counts).
_MAX_LOSS_EXCESS = 0.3
#: Smooth bound on the logits of the weights, so that no component vanishes for good.
MAX_LOGIT = 12.0


class MixedHead(Head):
    """A mixture of K count distributions in every row, for several modes, many zeros or heavy tails.

    Raw outputs: those of all components in the order of `families`, then K logits. The weights of the components are
    the softmax of the logits.

    Parameters
    ----------
    families : sequence of str
        One name in `HEADS` per component. Components of the same family are reordered to be adjacent. The default suits
        most counts: Double Poissons can be under-dispersed, and the Negative Binomial has a heavy tail.

    Examples
    --------
    >>> head = MixedHead(families=("poisson", "negative_binomial"))
    >>> head.parameter_names
    ('log mu 1', 'log mu 2', 'log alpha 2', 'logit 1', 'logit 2')
    >>> head(torch.tensor([0.0, 2.0, -9.0, 0.0, 0.0])).mean
    tensor(4.1945)
    """

    name = "mixed"
    n_raw = 9  # for the default families; `__init__` sets it for others
    support = constraints.nonnegative_integer
    has_glm = False
    validation_score = "nll"

    def __init__(self, *, families: Sequence[str] = FAMILIES) -> None:
        if isinstance(families, str) or not families:
            raise ConfigError(f"families must be a list of likelihoods such as {list(FAMILIES)}, got {families!r}.")
        #: The families with equal ones side by side, so that the components of a family are computed together.
        self.families = tuple(sorted(families, key=list(families).index))
        for family in self.families:
            head = HEADS.find(family)
            if not head.is_count or head.exposure_is_total or issubclass(head, MixedHead):
                must = "be likelihoods of unbounded counts, and no mixtures"
                raise ConfigError(argument="families", must=must, got=repr(family))
        sizes = [HEADS[family].n_raw for family in self.families]
        self.n_raw = sum(sizes) + len(sizes)  # type: ignore[misc]
        #: The head of each family, and its number of components.
        self._stacks = [(HEADS[family](), len(list(group))) for family, group in groupby(self.families)]
        self.parameter_names = (  # type: ignore[misc]
            *(f"{name} {k}" for k, family in enumerate(self.families, 1) for name in HEADS[family].parameter_names),
            *(f"logit {k}" for k in range(1, len(sizes) + 1)),
        )

    @property
    def glm_likelihood(self) -> str | None:
        """The name of the first family that has a GLM, or None if none has one."""
        return next((family for family in self.families if HEADS[family].has_glm), None)

    def _split_raw(self, raw: Tensor, dim: int) -> tuple[list[Tensor], Tensor]:
        """Split raw outputs by family, and compute the log weights of all components; return both.

        `dim` is the axis of the raw outputs. The first result has one tensor per family. For a family with k components
        of n_raw raw outputs each, this tensor has two axes of lengths k and n_raw in place of `dim`. The second result,
        the log weights, has one entry per component along `dim`.
        """
        sizes = [k * head.n_raw for head, k in self._stacks]
        *parts, logits = raw.split([*sizes, len(self.families)], dim=dim)
        split = zip(parts, self._stacks, strict=True)
        logits = MAX_LOGIT * torch.tanh(logits / MAX_LOGIT)
        return [part.unflatten(dim, (k, head.n_raw)) for part, (head, k) in split], logits.log_softmax(dim)

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> Any:
        """Create the mixture of all components. Shape: `raw` (..., n_raw) -> batch shape (...)."""
        parts, log_weights = self._split_raw(promote_precision(raw), -1)
        wide = None if exposure is None else exposure.unsqueeze(-1)
        stacks = [head.forward(part, wide) for part, (head, _) in zip(parts, self._stacks, strict=True)]
        return Mixture.concatenate(stacks, log_weights.exp(), validate_args=False)

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """Compute -log p(y) of the mixture for each row, from the `loss` of each component."""
        missing = max(y.dim(), 0 if exposure is None else exposure.dim()) - (raw.dim() - 1)
        # Components come first, because sums over a short last axis take several times as long.
        first = promote_precision(raw)[(None,) * missing].movedim(-1, 0).contiguous()
        parts, log_weights = self._split_raw(first, 0)
        pairs = zip(parts, self._stacks, strict=True)
        losses = torch.cat([head.loss(part.movedim(1, -1), y, exposure) for part, (head, _) in pairs])
        return -torch.logsumexp(log_weights.to(losses.dtype) - losses, dim=0)

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Return the raw outputs with which training starts, the same for all rows. Shape: (n_raw,).

        Each family is fitted alone, without features, and its components start from this fit. All components have equal
        weights. The first raw outputs of the components, usually log means, are then spread by at most 0.5 to either
        side, because equal components would stay equal during training. If this makes the mean loss of the mixture more
        than 0.3 nats per row higher than that of the family that fits best alone, smaller spreads are tried, down to
        0.03.

        See `Head.start` for the arguments.
        """
        return self.sample_start(CountRows(None, y, weight, exposure))

    def sample_start(self, sample: CountRows[object, Tensor]) -> Tensor:
        """Return the raw outputs with which training starts, for counts that may be bounded or censored.

        They are computed as in `start`, but from the likelihood of the recorded counts. Shape: (n_raw,).
        """
        heads = {family: HEADS[family]() for family in dict.fromkeys(self.families)}
        first = {family: head.sample_start(sample) for family, head in heads.items()}
        rows, size = WeightedCounts(sample), len(self.families)
        with torch.no_grad():
            best = min(rows.make_mean_loss(head.sample_loss)(first[name]) for name, head in heads.items())
            for spread in _SPREADS:
                raws = [first[family].clone() for family in self.families]
                offsets = torch.linspace(-spread, spread, size, dtype=torch.float64) * (size > 1)
                for raw, offset in zip(raws, offsets, strict=True):
                    raw[0] += offset.item()
                raw = torch.cat([*raws, torch.zeros(size).to(raws[0])])
                if rows.make_mean_loss(self.sample_loss)(raw) <= best + _MAX_LOSS_EXCESS:
                    break
        return raw
