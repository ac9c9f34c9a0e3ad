"""The mixed head: a mixture of several count distributions per network, with weights that the network predicts."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import Mixture
from ddpn.distributions.weighted_sums import sum_of_few
from ddpn.errors import ConfigError
from ddpn.heads.head import Head, promoted
from ddpn.heads.intercept import mean_loss
from ddpn.heads.likelihoods import HEADS
from ddpn.heads.scores import Counts
from ddpn.sample import Sample
from ddpn.validation import listed

#: Two Double Poissons and a Negative Binomial: one for a heavy tail, two for shapes with several modes.
FAMILIES = ("double_poisson", "double_poisson", "negative_binomial")
#: Half the range of the components' first log means around the common one: equal components would stay equal. Smaller
#: ones are for counts that vary so little that components further apart would fit none of them.
_SPREADS = (0.5, 0.2, 0.08, 0.03)
#: By how much the mean loss of the first mixture may exceed that of its best family, in nats: equal counts, which no
#: mixture fits as well as one family does, exceed it with every spread (test_means_of_equal_counts_are_these_counts).
_WORSE = 0.3
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
            if not _can_be_mixed(HEADS.find(family)):
                counts = [name for name in HEADS if _can_be_mixed(HEADS[name])]
                raise ConfigError(f"families must be likelihoods of counts ({listed(counts)}), got {family!r}.")
        sizes = [HEADS[family].n_raw for family in self.families]
        self.n_raw = sum(sizes) + len(sizes)  # type: ignore[misc]
        self.parameter_names = (  # type: ignore[misc]
            *(f"{name} {k}" for k, family in enumerate(self.families, 1) for name in HEADS[family].parameter_names),
            *(f"logit {k}" for k in range(1, len(sizes) + 1)),
        )

    @property
    def glm_likelihood(self) -> str | None:
        """The first family that has a GLM."""
        return next((family for family in self.families if HEADS[family].has_glm), None)

    @property
    def locations(self) -> tuple[int, ...]:
        """The first raw output of every component."""
        sizes = [HEADS[family].n_raw for family in self.families]
        return tuple(sum(sizes[:k]) for k in range(len(sizes)))

    @property
    def size(self) -> int:
        """K, the number of components."""
        return len(self.families)

    @cached_property
    def _stacks(self) -> list[tuple[Head, int]]:
        """One head per family, and how many components it has."""
        return [(HEADS[family](), len(list(group))) for family, group in groupby(self.families)]

    def _parts(self, raw: Tensor) -> tuple[list[Tensor], Tensor]:
        """Raw outputs of each family, and log weights. Shape: (..., k, P) each, and (..., K)."""
        sizes = [k * head.n_raw for head, k in self._stacks]
        *parts, logits = raw.split([*sizes, self.size], dim=-1)
        split = zip(parts, self._stacks, strict=True)
        logits = LOGIT * torch.tanh(logits / LOGIT)
        return [part.unflatten(-1, (k, head.n_raw)) for part, (head, k) in split], logits.log_softmax(-1)

    @cached_property
    def _ranges(self) -> np.ndarray | None:
        """Where all parameters are exponentials: lower and upper ends of the raw outputs. Shape: (2, n_raw - K)."""
        known = [HEADS[family].exponential for family in self.families]
        return None if None in known else np.array([pair for each in known if each for pair in each[1]]).T

    def _exponential(self, raw: Tensor) -> Any:
        """The same as `forward` by one exponential of all parameters; None where it does not serve."""
        # Outputs in float32 that lie row by row are those of networks in training.
        known = raw.dtype == torch.float64 or (raw.dtype == torch.float32 and raw.dim() > 1 and raw.stride(0) == 1)
        if raw.requires_grad or raw.device.type != "cpu" or not known or self._ranges is None:
            return None
        if torch._C._functorch.peek_interpreter_stack() is not None or torch.compiler.is_compiling():
            return None
        low, high = self._ranges
        outputs = raw.numpy()[..., : len(low)]
        if not ((outputs >= low) & (outputs <= high)).all():
            return None
        values, start, stacks = raw[..., : len(low)].exp(), 0, []
        for head, k in self._stacks:
            each, stop = head.n_raw, start + k * head.n_raw
            family: Any = head.exponential[0] if head.exponential else None
            stacks.append(family.trusted(*(values[..., start + i : stop : each] for i in range(each))))
            start = stop
        logits = raw[..., start:] / LOGIT
        if raw.dtype == torch.float64:
            return Mixture.trusted(stacks, logits.tanh_().mul_(LOGIT).softmax(-1))
        # Bounded logits need no maximum subtracted. The tanh of numpy is faster.
        np.tanh(logits.numpy(), out=logits.numpy())
        terms = logits.mul_(LOGIT).exp_().double()
        return Mixture.trusted(stacks, terms.div_(sum_of_few(terms).unsqueeze(-1)))

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> Any:
        """The mixture of all components."""
        if exposure is None and (found := self._exponential(raw)) is not None:
            return found
        parts, log_weights = self._parts(promoted(raw))
        wide = None if exposure is None else exposure.unsqueeze(-1)
        stacks = [head.forward(part, wide) for part, (head, _) in zip(parts, self._stacks, strict=True)]
        found = Mixture.concatenate(stacks, log_weights.exp(), validate_args=False)
        found.moments_by_table = True
        return found

    def loss_and_gradient(self, raw: Tensor, counts: Counts, exposure: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Gradients of the components times their shares of p(y); None if a family has none in closed form."""
        if any(_has_own_loss(head) for head, _ in self._stacks):
            return None
        found, start = [], 0
        for head, k in self._stacks:
            stop = start + k * head.n_raw
            each = head.loss_and_gradient(raw[start:stop].unflatten(0, (k, -1)).transpose(0, 1), counts, exposure)
            if each is None:
                return None
            found.append(each)
            start = stop
        bounded = (raw[start:] / LOGIT).tanh_()
        logits = LOGIT * bounded
        total, prior = _normalised(logits)
        joint, shares = _normalised(torch.cat([-loss for loss, _ in found]).add_(logits))
        gradient = torch.empty_like(raw)
        start = row = 0
        for (head, k), (_, slopes) in zip(self._stacks, found, strict=True):
            own = gradient[start : start + k * head.n_raw].unflatten(0, (k, -1)).transpose(0, 1)
            torch.mul(slopes, shares[row : row + k], out=own)
            start, row = start + k * head.n_raw, row + k
        torch.mul(prior.sub_(shares), bounded.square_().neg_().add_(1.0), out=gradient[start:])
        return total.sub_(joint), gradient

    def differentiable_loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """-log p(y), in float64."""
        parts, log_weights = self._parts(raw.double())
        wide = None if exposure is None else exposure.unsqueeze(-1)
        pairs = zip(parts, self._stacks, strict=True)
        losses = [
            (head.loss if _has_own_loss(head) else head.differentiable_loss)(part, y.unsqueeze(-1), wide)
            for part, (head, _) in pairs
        ]
        return -torch.logsumexp(log_weights - torch.cat(losses, dim=-1), dim=-1).to(promoted(raw).dtype)

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Every family's fit without features, with their log means spread, and equal weights."""
        return self.sample_start(Sample(None, y, weight, exposure))

    def sample_start(self, sample: Sample) -> Tensor:
        """The same where counts may be bounded or censored."""
        heads = {family: HEADS[family]() for family in dict.fromkeys(self.families)}
        first = {family: head.sample_start(sample) for family, head in heads.items()}
        with torch.no_grad():
            losses = [mean_loss(head, sample)(first[name]) for name, head in heads.items()]
            own = mean_loss(self, sample)
            for spread in _SPREADS:
                raw = self._spread(first, spread)
                if own(raw) <= min(losses) + _WORSE:
                    break
        return raw

    def _spread(self, first: Mapping[str, Tensor], spread: float) -> Tensor:
        """Raw outputs of components whose log means are apart, with equal weights."""
        offsets = torch.linspace(-spread, spread, self.size, dtype=torch.float64) if self.size > 1 else torch.zeros(1)
        raws = []
        for family, offset in zip(self.families, offsets, strict=True):
            raw = first[family].clone()
            raw[0] += offset.to(raw)
            raws.append(raw)
        return torch.cat([*raws, torch.zeros(self.size, dtype=torch.float64, device=raws[0].device)])


def _has_own_loss(head: Head) -> bool:
    """Whether a likelihood has a loss of its own instead of what `Head.loss` makes of its other methods."""
    return type(head).loss is not Head.loss


def _normalised(logs: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithm of the sum of exponentials along the first axis, and their shares of it."""
    top = logs.amax(0)
    terms = (logs - top).exp_()
    total = terms.sum(0)
    return total.log().add_(top), terms.div_(total)


def _can_be_mixed(head: type[Head]) -> bool:
    """Whether a likelihood can be a component: of counts without end, and no mixture itself."""
    return head.is_count and not head.exposure_is_total and not issubclass(head, MixedHead)
