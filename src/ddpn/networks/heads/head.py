"""The contract of every head: raw outputs -> distribution, and the objective a network is trained on."""

import inspect
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions.limits import as_recorded
from ddpn.distributions.parametric import ParametricDistribution
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.threads import single_blas_thread
from ddpn.runtime.validation import check_number, is_number
from ddpn.sample import Sample

_LOW_PRECISION = (torch.float16, torch.bfloat16)
#: How far from its first guess, beyond the guess's own size, `Head.start` searches: e^20 on a log scale.
_REACH = 20.0
#: Slopes of the mean loss below this end the search: no network starts that close.
_SLOPE = 1e-7
#: So does a relative gain below this: 0/1 data have a ridge along which the loss hardly changes.
_GAIN = 1e-12
#: What a head may know about the distribution that its `forward` returns.
_OF_FORWARD = {"loss", "loss_is_likelihood", "gradient", "curvature", "start"}
#: Step of central differences of gradients in raw outputs, which are exact to 1e-11 or so.
_STEP = 1e-4
#: The smallest curvature, where a loss is flat or not convex: a step is then as long as the gradient allows.
FLOOR = 1e-6
#: Of log gamma and log alpha, whose curvature is at most about 1/2: with less, rows far from any information took
#: steps onto the clamps.
DISPERSION_FLOOR = 0.05


@cache
def _option_defaults(kind: type) -> dict[str, Any]:
    """The options of a class with their defaults; inspecting a signature takes longer than the rest of `make_head`."""
    parameters = inspect.signature(kind).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


class WeightedCounts:
    """Counts with their weights (1 where none are given) and exposures, in float64."""

    @torch.inference_mode(False)
    def __init__(self, y: Tensor, weight: Tensor | None, exposure: Tensor | None) -> None:
        # Copied, because autograd takes no tensors that were made in inference mode.
        self.y = y.double().clone()
        self.weight = torch.ones_like(self.y) if weight is None else weight.double().expand_as(self.y).clone()
        self.exposure = None if exposure is None else exposure.double().expand_as(self.y).clone()
        if exposure is None:
            # Equal counts as one row: the likelihood is then evaluated a few hundred times, not once per row.
            self.y, place = self.y.unique(return_inverse=True)
            self.weight = torch.zeros_like(self.y).index_add_(0, place, self.weight)

    def mean(self, values: Tensor) -> Tensor:
        """Weighted mean over the rows."""
        return (self.weight * values).sum() / self.weight.sum()

    def mean_loss(self, head: "Head") -> Callable[[Tensor], Tensor]:
        """The mean loss of a head, as a function of the raw outputs (P,) that all rows share."""
        return lambda raw: self.mean(head.loss(raw, self.y, self.exposure))

    @property
    def scale(self) -> Tensor:
        """Every row's exposure."""
        return torch.ones_like(self.y) if self.exposure is None else self.exposure


class Head(ABC):
    """A likelihood as a network sees it: options but no parameters.

    A subclass sets `name` (its name in `HEADS`), `n_raw` (raw outputs per row) and `support` (a torch constraint), and
    writes `forward`. Everything else has a default:

    - `parameter_names`, what each raw output is, in tables of coefficients: ("raw 0", "raw 1", ...);
    - `is_count`, whether the distribution is one of counts: whether `support` is discrete;
    - `has_glm`, whether `loss` is a negative log-likelihood in all raw outputs, so that a generalised linear model has
      standard errors: True;
    - `exposure_is_total`, whether exposures are totals, integers that no count exceeds and that must not be rescaled:
      False;
    - `is_baseline`, whether the constant member tries this likelihood for models with another one: True;
    - `validation_score`, what chooses a network's best epoch by default, "crps" or "nll": "crps".

    Options are keyword-only arguments of the constructor, each kept under its own name. `exposure`, the known scale of
    a row, multiplies the location of the distribution.

    Shape: raw (..., P) with P = n_raw; y and exposure broadcast with raw.shape[:-1], typically (B, 1) or (B, M).
    """

    name: ClassVar[str]
    n_raw: ClassVar[int]
    support: ClassVar[Any]
    parameter_names: ClassVar[tuple[str, ...]]
    is_count: ClassVar[bool]
    has_glm: ClassVar[bool] = True
    exposure_is_total: ClassVar[bool] = False
    is_baseline: ClassVar[bool] = True
    validation_score: ClassVar[str] = "crps"

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        own = vars(cls)
        if "n_raw" in own and "parameter_names" not in own:
            cls.parameter_names = tuple(f"raw {i}" for i in range(cls.n_raw))
        if "support" in own and "is_count" not in own:
            cls.is_count = bool(cls.support.is_discrete)
        if "forward" in own:  # what a base class knows about its distribution does not hold for another one
            for name in _OF_FORWARD - own.keys():
                setattr(cls, name, vars(Head)[name])

    @abstractmethod
    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> Distribution:
        """The distribution of every row: the only place for links. Never reads values, so that a GPU need not wait.

        Parameters
        ----------
        raw : Tensor, shape (..., n_raw)
            Raw outputs of a network.
        exposure : Tensor, optional
            The known scale of each row, which multiplies the location.
        """

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """The training objective, one value per element: -log p(y), computed in float64.

        Parameters
        ----------
        raw, exposure
            As for `forward`.
        y : Tensor
            Observed counts.
        """
        dist: Any = self.forward(raw.double(), exposure)
        if raw.dtype != torch.float64 and hasattr(dist, "float32_log_prob"):
            return -dist.float32_log_prob(y).to(promoted(raw).dtype)
        return -dist.log_prob(y).to(promoted(raw).dtype)

    def sample_loss(self, raw: Tensor, sample: Sample) -> Tensor:
        """`loss` of a sample's rows; where counts are bounded or censored, -log p of what was recorded, in float64."""
        if sample.is_plain:
            return self.loss(raw, sample.y, sample.exposure)
        dist = as_recorded(self.forward(raw.double(), sample.exposure), sample)
        return -dist.log_prob(sample.y.double()).to(promoted(raw).dtype)

    @torch.inference_mode(False)
    @torch.enable_grad()
    def gradient(self, raw: Tensor, sample: Sample) -> Tensor:
        """The gradient of the loss in every raw output, in float64.

        Parameters
        ----------
        raw : Tensor, shape (N, n_raw)
            Raw outputs.
        sample : Sample
            Counts, exposures, bounds and limits of the rows, as tensors.
        """
        x = raw.detach().double().clone().requires_grad_()
        return torch.autograd.grad(self.sample_loss(x, sample).sum(), x)[0]

    @torch.inference_mode(False)
    @torch.enable_grad()
    def curvature(self, raw: Tensor, sample: Sample) -> Tensor:
        """The curvature of the loss in every raw output, in float64 and positive: how long a step may be.

        It is the expected one for families of distributions, whose kernels know it, and the size of the second
        derivative for others; that of counts as if they were all known, as less is known about bounded and censored
        ones, so that steps are no longer than they may be.

        Parameters
        ----------
        raw, sample
            As for `gradient`.
        """
        x = raw.detach().double().clone().requires_grad_()
        dist = self.forward(x, sample.exposure) if self.loss_is_likelihood else None
        if not isinstance(dist, ParametricDistribution):
            return self._curvature(x.detach(), sample)
        found = _expected_curvature(dist, x).clamp(min=FLOOR)
        others = [p for p in range(self.n_raw) if p not in self.locations]
        found[:, others] = found[:, others].clamp(min=DISPERSION_FLOOR)
        return found

    def _curvature(self, raw: Tensor, sample: Sample) -> Tensor:
        """Sizes of the second derivatives of the loss in each raw output, by central differences. Shape: (N, n_raw)."""
        found = torch.empty_like(raw)
        for p in range(self.n_raw):
            slopes = []
            for step in (_STEP, -_STEP):
                x = raw.clone()
                x[:, p] += step
                x.requires_grad_()
                slopes.append(torch.autograd.grad(self.loss(x, sample.y, sample.exposure).sum(), x)[0][:, p])
            found[:, p] = (slopes[0] - slopes[1]) / (2.0 * _STEP)
        return found.abs().clamp(min=FLOOR)  # where a loss bends down, its size still says how far a step may go

    @property
    def loss_is_likelihood(self) -> bool:
        """Whether `loss` is -log p of the distribution, neither weighted nor another objective."""
        return type(self).loss is Head.loss

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """The raw outputs that fit y best without features, where training starts.

        They minimise the weighted mean loss, found by a search from several guesses: zeros, or the mean of
        y / exposure or its logarithm with zeros or the logarithm of the variance. A minimum at infinity is cut off.

        Parameters
        ----------
        y : Tensor, shape (N,)
            Observed counts.
        weight, exposure : Tensor, shape (N,), optional
            How many times each row counts, and its known scale. Default: 1.

        Returns
        -------
        Tensor, shape (n_raw,)
            In float64.
        """
        rows = WeightedCounts(y, weight, exposure)
        loss = rows.mean_loss(self)
        with torch.no_grad():
            best = min(self._guesses(rows), key=lambda raw: loss(raw).nan_to_num(torch.inf).item())
        return fit(loss, best, _around(best))

    def sample_start(self, sample: Sample) -> Tensor:
        """`start` of a sample's rows; where counts are bounded or censored, what makes the recorded ones most likely.

        The likelihood of what was recorded is searched from `start`, from there with all raw outputs but the first at
        0, and from the `start` of counts of which the censored ones are twice as large: censored counts vary so little
        that a dispersion fitted to them as they are has no slope that leads back.

        Parameters
        ----------
        sample : Sample
            Counts as tensors (N,), with weights, exposures, bounds and limits, if any.

        Returns
        -------
        Tensor, shape (n_raw,)
            In float64.
        """
        guess = self.start(sample.y, sample.weight, sample.exposure)
        if sample.is_plain:
            return guess
        guesses = [guess, torch.cat([guess[:1], torch.zeros_like(guess[1:])])]
        if sample.limit is not None:
            raised = torch.where(sample.y >= sample.limit, 2.0 * sample.y + 1.0, sample.y)
            guesses.append(self.start(raised, sample.weight, sample.exposure))
        loss = mean_loss(self, sample)
        found = [fit(loss, each, _around(each)) for each in guesses]
        with torch.no_grad():
            return min(found, key=lambda raw: float(loss(raw).nan_to_num(float("inf"))))

    def _guesses(self, rows: WeightedCounts) -> list[Tensor]:
        """Raw outputs (n_raw,) from the best of which `start` searches."""
        rate = rows.y / rows.scale
        mean = rows.mean(rate)
        spread = rows.mean((rate - mean).square())
        logs = [x.clamp(min=1e-6).log() for x in (mean, spread)]
        zero = torch.zeros_like(mean)
        pairs = itertools.product((zero, logs[0], mean), (zero, logs[1]))
        return [torch.stack([first, *[other] * (self.n_raw - 1)]) for first, other in pairs]

    def check_targets(self, y: np.ndarray, exposure: np.ndarray | None, labels: Any = None) -> None:
        """Raise an `InputError` for counts that this likelihood cannot have. Does nothing by default.

        Parameters
        ----------
        y : array, shape (N,)
            Observed counts.
        exposure : array, shape (N,), or None
            The known scale of each row.
        labels : sequence, optional
            What messages call the rows. Default: positions from 0.
        """
        return

    def __call__(self, raw: Tensor, exposure: Tensor | None = None) -> Distribution:
        return self.forward(raw, exposure)

    def check_bounds(self) -> None:
        """Raise a `ConfigError` if this head cannot be trained on bounded or censored counts."""
        if not self.is_count:
            raise ConfigError(f'Bounded and censored counts need a likelihood of counts, got "{self.name}".')

    @property
    def glm_likelihood(self) -> str | None:
        """The likelihood of a GLM that goes with this head; None if there is none."""
        return self.name if self.has_glm else None

    @property
    def locations(self) -> tuple[int, ...]:
        """Positions of the raw outputs that say where counts lie, whose curvature needs no floor: the first one."""
        return (0,)

    @property
    def sees(self) -> tuple[str, ...]:
        """What each raw output is computed from.

        One of "features", "detached" (features without gradient) and "nothing" per raw output.
        """
        return ("features",) * self.n_raw

    @classmethod
    def option_defaults(cls) -> dict[str, Any]:
        """Every option of this likelihood with its default.

        >>> from ddpn.networks.heads import GaussianHead
        >>> GaussianHead.option_defaults()
        {'beta': 0.0}
        """
        return dict(_option_defaults(cls))

    @property
    def options(self) -> dict[str, Any]:
        """The options that rebuild this head, as in `make_head(head.name, **head.options)`."""
        return {name: getattr(self, name) for name in self.option_defaults()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"


def _expected_curvature(dist: ParametricDistribution, raw: Tensor) -> Tensor:
    """Expected second derivatives of -log p in the raw outputs that the parameters were made of. Shape: (N, P)."""
    total = torch.zeros_like(raw)
    for name, information in dist.information().items():
        parameter = getattr(dist, name)
        if parameter.requires_grad:  # a known total does not
            (slope,) = torch.autograd.grad(parameter.sum(), raw, retain_graph=True)
            total += information.unsqueeze(1) * slope.square()
    return total


def _around(guess: Tensor) -> list[tuple[float, float]]:
    """Where a search from a guess ends, for a minimum at infinity."""
    return [(x - _REACH - abs(x), x + _REACH + abs(x)) for x in guess.tolist()]


def promoted(raw: Tensor) -> Tensor:
    """Half precisions as float32: exp of a bfloat16 has two digits."""
    return raw.float() if raw.dtype in _LOW_PRECISION else raw


def check_beta(beta: float) -> None:
    """Raise a `ConfigError` if `beta` is not between 0 (the likelihood) and 1 (a plain fit of the mean)."""
    check_number("beta", beta, "a number in [0, 1]", is_number(beta) and 0.0 <= beta <= 1.0)


# Fits without features ----------------------------------------------------------------------------------------------


def mean_loss(head: Any, sample: Sample) -> Callable[[Tensor], Tensor]:
    """The weighted mean of the losses of what was recorded, as a function of the raw outputs (P,) that all rows share.

    Equal rows are evaluated as one.
    """
    names = [name for name in sample.parts if name not in ("X", "weight")]
    columns = torch.stack([sample.parts[name].double() for name in names], dim=1)
    weight = torch.ones_like(sample.y, dtype=torch.float64) if sample.weight is None else sample.weight.double()
    with torch.inference_mode(False):
        if len(names) == 1:  # torch sorts numbers a hundred times faster than rows
            values, place = columns[:, 0].clone().unique(return_inverse=True)
            distinct = values.unsqueeze(1)
        else:
            distinct, place = columns.clone().unique(dim=0, return_inverse=True)
        total = torch.zeros_like(distinct[:, 0]).index_add_(0, place, weight.clone())
    rows, share = Sample(None, **dict(zip(names, distinct.unbind(1), strict=True))), total / total.sum()
    return lambda raw: share @ head.sample_loss(raw.expand(len(rows), -1), rows)


def fit(loss: Callable[[Tensor], Tensor], guess: Tensor, bounds: Sequence[tuple[float, float]]) -> Tensor:
    """The raw outputs (P,) within `bounds` that minimise the scalar `loss`, searched from `guess`."""

    @torch.inference_mode(False)
    def value_and_slope(x: np.ndarray) -> tuple[float, np.ndarray]:
        raw = torch.tensor(x, dtype=torch.float64, device=guess.device, requires_grad=True)
        value = loss(raw)
        (slope,) = torch.autograd.grad(value, raw)
        return value.item(), slope.cpu().numpy()

    options = {"ftol": _GAIN, "gtol": _SLOPE}
    with single_blas_thread():  # of matrices of a few rows: two threads on a busy machine take twice as long in all
        found = minimize(
            value_and_slope, guess.cpu().numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
    return torch.tensor(found.x, dtype=torch.float64, device=guess.device)
