"""The Double Binomial head, for counts "k of n" with a known total n."""

import math

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import DoubleBinomial
from ddpn.distributions.arguments import check_totals, needs_validation
from ddpn.networks.heads.clamps import LOG_GAMMA, bend, highest_log_gamma
from ddpn.networks.heads.constant_fit import WeightedCounts, minimise_loss
from ddpn.networks.heads.head import Head, promote_precision
from ddpn.rows.checks import Labels
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_integer, format_rows

#: logit of mu / total: from 2e-6 to 1 - 2e-6, which float32 still distinguishes from 0 and 1.
LOGIT = (-13.0, 13.0)
#: gamma >= 0.5 / total. With a smaller gamma, the distribution hardly depends on p, which would get no gradient.
_LOG_MIN_GAMMA_TOTAL = math.log(0.5)
#: gamma >= 2 / total in the fit without features, for the same reason.
_LOG_MIN_START_GAMMA_TOTAL = math.log(2.0)


class DoubleBinomialHead(Head):
    """The Double Binomial likelihood: counts "k of n" with a known total n, over-, equi- or under-dispersed.

    Raw outputs: (logit p, log gamma). The mean is about total * p, and the variance about total * p * (1 - p) / gamma.
    The exposure of a row is its total, an integer that is at least as large as the count.

    Parameters
    ----------
    total : int, optional
        The total that all rows share. It is used for rows without exposures.

    Examples
    --------
    >>> head = DoubleBinomialHead(total=12)
    >>> head(torch.tensor([1.0, 0.0])).mean
    tensor(8.7727)
    >>> head.loss(torch.tensor([1.0, 0.0]), torch.tensor(12))
    tensor(3.7591)
    """

    name = "double_binomial"
    n_raw = 2
    support = constraints.nonnegative_integer
    parameter_names = ("logit p", "log gamma")
    dispersion_outputs = (1,)
    location_note = "total * p is the mean of a Binomial, and close to that of a Double Binomial unless gamma is small."
    exposure_is_total = True

    def __init__(self, *, total: int | None = None) -> None:
        if total is not None:
            check_integer("total", total, 1)
        self.total = total

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> DoubleBinomial:
        """Create a Double Binomial with mu = total * sigmoid(raw[0]) and gamma = e^raw[1], both smoothly bounded.

        The total of a row is its exposure or, without exposures, the option `total`. See `Head.forward` for the shapes.
        """
        raw = promote_precision(raw)
        total = self._total(exposure, raw)
        logit = bend(raw[..., 0], *LOGIT)
        spread = torch.nn.functional.logsigmoid(logit) + torch.nn.functional.logsigmoid(-logit)
        log_total = total.log()
        highest = torch.maximum(
            highest_log_gamma(log_total + spread) + log_total, log_total.new_tensor(_LOG_MIN_GAMMA_TOTAL)
        )
        log_gamma = bend(raw[..., 1] + log_total, _LOG_MIN_GAMMA_TOTAL, highest) - log_total
        return DoubleBinomial(total, total * torch.sigmoid(logit), log_gamma.exp(), validate_args=False)

    def sample_loss(self, raw: Tensor, sample: CountRows[object, Tensor]) -> Tensor:
        """Compute the loss of each row, as `Head.sample_loss` does.

        Upper bounds of rows are ignored, because the total is the upper bound.
        """
        return super().sample_loss(raw, sample.replace(upper=None))

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Return the raw outputs of an intercept-only fit by maximum likelihood (see `Head.start`).

        gamma is at least 2 divided by the mean total, because p would get no gradient with a smaller gamma. The
        optimiser starts from the Binomial with the mean of the counts.
        """
        rows = WeightedCounts(CountRows(None, y, weight, exposure))
        total = self._total(rows.exposure, rows.y).expand_as(rows.y)
        self.check_targets(rows.y.cpu().numpy(), total.cpu().numpy())
        share = (rows.mean(rows.y) / rows.mean(total)).clamp(*torch.sigmoid(torch.tensor(LOGIT, dtype=torch.float64)))
        widest = _LOG_MIN_START_GAMMA_TOTAL - rows.mean(total).log().item()
        guess = torch.stack([torch.logit(share), torch.full_like(share, max(widest, 0.0))])
        bounds = [(LOGIT[0] - 1.0, LOGIT[1] + 1.0), (widest, max(widest, LOG_GAMMA[1] + 1.0))]
        return minimise_loss(rows.make_mean_loss(self.sample_loss), guess, bounds)

    def check_targets(self, y: np.ndarray, exposure: np.ndarray | None, labels: Labels = None) -> None:
        """Raise an `InputError` if a row has no total, a total that is not a positive integer, or a count above it."""
        if exposure is None and self.total is None:
            raise InputError(_MISSING)
        total = np.broadcast_to(np.asarray(self.total if exposure is None else exposure), np.shape(y))
        names = np.arange(len(total)) if labels is None else np.asarray(labels)
        if (bad := (total != np.floor(total)) | (total < 1)).any():
            got = f"got {total[bad][0]:g} {format_rows(names[bad].tolist())}"
            raise InputError(f"exposure must hold totals, integers of at least 1, {got}.")
        if (bad := y > total).any():
            got = f"got {y[bad][0]:g} of {total[bad][0]:g} {format_rows(names[bad].tolist())}"
            raise InputError(f"y must be at most the total, {got}.")

    def _total(self, exposure: Tensor | None, like: Tensor) -> Tensor:
        if exposure is None:
            if self.total is None:
                raise InputError(_MISSING)
            return torch.full((), float(self.total), dtype=like.dtype, device=like.device)
        if needs_validation(None, exposure):
            check_totals("exposure", exposure)
        return exposure.to(like.dtype)


_MISSING = (
    "double_binomial needs the total of every row: pass it as exposure or as upper, "
    "which may be one number for all rows."
)
