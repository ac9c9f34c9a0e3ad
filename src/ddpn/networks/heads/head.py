"""The contract of every head: raw outputs -> distribution, and the objective a network is trained on."""

import inspect
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
from ddpn.rows.checks import Labels
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.threads import single_blas_thread
from ddpn.runtime.validation import check_number, is_number
from ddpn.storage.contents import JsonObject

_LOW_PRECISION = (torch.float16, torch.bfloat16)
#: How far from its guess, beyond the guess's own size, a search goes for a minimum at infinity: e^20 on a log scale.
_REACH = 20.0
#: Slopes of the mean loss below this end the search: no network starts that close.
_SLOPE = 1e-7
#: So does a relative gain below this: 0/1 data have a ridge along which the loss hardly changes.
_GAIN = 1e-12
#: What a head may know about the distribution that its `forward` returns.
_OF_FORWARD = {"loss", "loss_is_likelihood", "start"}
#: Step of central differences of gradients in raw outputs, which are exact to 1e-11 or so.
_STEP = 1e-4
#: The smallest curvature, where a loss is flat or not convex: a step is then as long as the gradient allows.
FLOOR = 1e-6
#: Of log gamma and log alpha, whose curvature is at most about 1/2: with less, rows far from any information took
#: steps onto the clamps.
DISPERSION_FLOOR = 0.05


class WeightedCounts:
    """Counts with their weights (1 where none are given), exposures, bounds and limits, in float64.

    Equal counts become one row, but for plain counts with exposures, which hardly ever are equal: the likelihood is
    then evaluated a few hundred times, not once per row.
    """

    @torch.inference_mode(False)
    def __init__(self, sample: CountRows) -> None:
        # Copied, because autograd takes no tensors that were made in inference mode.
        parts = {k: part.double().expand_as(sample.y).clone() for k, part in sample.parts.items() if k != "X"}
        self.weight = parts.pop("weight", torch.ones_like(parts["y"]))
        if sample.exposure is None or not sample.is_unrestricted:
            columns = list(parts.values())
            if len(columns) == 1:  # torch sorts numbers a hundred times faster than rows
                distinct, place = columns[0].unique(return_inverse=True)
                columns = [distinct]
            else:
                distinct, place = torch.stack(columns, dim=1).unique(dim=0, return_inverse=True)
                columns = list(distinct.unbind(1))
            parts = dict(zip(parts, columns, strict=True))
            self.weight = torch.zeros_like(parts["y"]).index_add_(0, place, self.weight)
        self.sample = CountRows(None, **parts)
        self.y, self.exposure = self.sample.y, self.sample.exposure
        #: Every row's exposure.
        self.scale = torch.ones_like(self.y) if self.exposure is None else self.exposure

    def mean(self, values: Tensor) -> Tensor:
        """Weighted mean over the rows."""
        return (self.weight * values).sum() / self.weight.sum()

    def mean_loss(self, head: "Head") -> Callable[[Tensor], Tensor]:
        """The mean loss of a head, as a function of the raw outputs (P,) that all rows share."""
        return lambda raw: self.mean(head.sample_loss(raw, self.sample))


class Head(ABC):
    """A likelihood as a network sees it: options but no parameters.

    A subclass sets `name` (its name in `HEADS`), `n_raw` (raw outputs per row) and `support` (a torch constraint), and
    writes `forward`. Everything else has a default:

    - `parameter_names`, what each raw output is, in tables of coefficients: ("raw 0", "raw 1", ...);
    - `dispersion_outputs`, which raw outputs are dispersions, which a GLM keeps constant unless asked: ();
    - `location_is_mean`, whether the first raw output is the logarithm of the exact mean: False;
    - `location_note`, a sentence that says what the first raw output is, where its name does not: "";
    - `is_count`, whether the distribution is one of counts: whether `support` is discrete;
    - `has_glm`, whether `loss` is a negative log-likelihood in all raw outputs, so that a generalised linear model has
      standard errors: True;
    - `exposure_is_total`, whether exposures are totals, integers that no count exceeds and that must not be rescaled:
      False;
    - `is_baseline`, whether the constant member tries this likelihood for models with another one: True;
    - `objective_options`, options that only `loss` reads, which a subclass with another `forward` refuses unless it has
      a `loss` of its own, too: ();
    - `validation_score`, what chooses a network's best epoch by default, "crps" or "nll": "crps".

    Options are keyword-only arguments of the constructor, each kept under its own name. `exposure`, the known scale of
    a row, multiplies the location of the distribution.

    Shape: raw (..., P) with P = n_raw; y and exposure broadcast with raw.shape[:-1], typically (B, 1) or (B, M).
    """

    name: ClassVar[str]
    n_raw: ClassVar[int]
    support: ClassVar[Any]
    parameter_names: ClassVar[tuple[str, ...]]
    dispersion_outputs: ClassVar[tuple[int, ...]] = ()
    location_is_mean: bool = False
    location_note: str = ""
    is_count: ClassVar[bool]
    has_glm: ClassVar[bool] = True
    exposure_is_total: ClassVar[bool] = False
    is_baseline: ClassVar[bool] = True
    validation_score: ClassVar[str] = "crps"
    objective_options: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **keywords: object) -> None:
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
        if type(self).loss is Head.loss:
            self._check_objective()
        dist: Any = self.forward(raw.double(), exposure)
        if raw.dtype != torch.float64 and hasattr(dist, "float32_log_prob"):
            return -dist.float32_log_prob(y).to(promoted(raw).dtype)
        return -dist.log_prob(y).to(promoted(raw).dtype)

    def _check_objective(self) -> None:
        """Raise a `ConfigError` for options of an objective that was that of another `forward`."""
        owner: Any = next(kind for kind in type(self).__mro__ if "objective_options" in vars(kind))
        for name in self.objective_options:
            if getattr(self, name) != owner.option_defaults()[name]:
                kind = type(self).__name__
                message = f"has no effect in {kind}, which has a forward of its own and is trained on -log p"
                raise ConfigError(message, argument=name, remedy=f"Leave it out, or give {kind} a loss as well.")

    def sample_loss(self, raw: Tensor, sample: CountRows) -> Tensor:
        """`loss` of a sample's rows; where counts are bounded or censored, -log p of what was recorded, in float64."""
        if sample.is_unrestricted:
            return self.loss(raw, sample.y, sample.exposure)
        dist = as_recorded(self.forward(raw.double(), sample.exposure), sample)
        return -dist.log_prob(sample.y.double()).to(promoted(raw).dtype)

    @torch.inference_mode(False)
    @torch.enable_grad()
    def gradient(self, raw: Tensor, sample: CountRows) -> Tensor:
        """The gradient of the loss in every raw output, in float64. Shape: (N, n_raw)."""
        x = raw.detach().double().clone().requires_grad_()
        return torch.autograd.grad(self.sample_loss(x, sample).sum(), x)[0]

    @torch.inference_mode(False)
    @torch.enable_grad()
    def curvature(self, raw: Tensor, sample: CountRows) -> Tensor:
        """The curvature of the loss in every raw output, in float64 and positive: how long a step may be.

        It is the expected one for families of distributions, whose kernels know it, and the size of the second
        derivative for others; that of counts as if they were all known, as less is known about bounded and censored
        ones, so that steps are no longer than they may be. Shape: (N, n_raw).
        """
        x = raw.detach().double().clone().requires_grad_()
        dist, found = self.forward(x, sample.exposure) if self.loss_is_likelihood else None, torch.zeros_like(x)
        if isinstance(dist, ParametricDistribution):
            for name, information in dist.information().items():
                parameter = getattr(dist, name)
                if parameter.requires_grad:  # a known total does not
                    (slope,) = torch.autograd.grad(parameter.sum(), x, retain_graph=True)
                    found += information.unsqueeze(1) * slope.square()
            found[:, 1:].clamp_(min=DISPERSION_FLOOR)
            return found.clamp(min=FLOOR)
        known = CountRows(None, sample.y, exposure=sample.exposure)
        for p, step in enumerate(_STEP * torch.eye(self.n_raw).to(x)):
            higher, lower = (self.gradient(at, known)[:, p] for at in (x + step, x - step))
            found[:, p] = (higher - lower) / (2.0 * _STEP)
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
        rows = WeightedCounts(CountRows(None, y, weight, exposure))
        loss = rows.mean_loss(self)
        with torch.no_grad():
            best = _best(self._guesses(rows), loss)
        return fit(loss, best)

    def sample_start(self, sample: CountRows) -> Tensor:
        """`start` of a sample's rows; where counts are bounded or censored, what makes the recorded ones most likely.

        The likelihood of what was recorded is searched from `start`, from there with all raw outputs but the first at
        0, and from the `start` of counts of which the censored ones are twice as large: censored counts vary so little
        that a dispersion fitted to them as they are has no slope that leads back.
        """
        guess = self.start(sample.y, sample.weight, sample.exposure)
        if sample.is_unrestricted:
            return guess
        guesses = [guess, torch.cat([guess[:1], torch.zeros_like(guess[1:])])]
        if sample.limit is not None:
            raised = torch.where(sample.y >= sample.limit, 2.0 * sample.y + 1.0, sample.y)
            guesses.append(self.start(raised, sample.weight, sample.exposure))
        loss = WeightedCounts(sample).mean_loss(self)
        found = [fit(loss, each) for each in guesses]
        with torch.no_grad():
            return _best(found, loss)

    def _guesses(self, rows: WeightedCounts) -> list[Tensor]:
        """Raw outputs (n_raw,) from the best of which `start` searches."""
        rate = rows.y / rows.scale
        mean = rows.mean(rate)
        spread = rows.mean((rate - mean).square())
        logs = [x.clamp(min=1e-6).log() for x in (mean, spread)]
        zero = torch.zeros_like(mean)
        firsts, others = (zero, logs[0], mean), (zero, logs[1])
        return [torch.stack([first, *[other] * (self.n_raw - 1)]) for first in firsts for other in others]

    def check_targets(self, y: np.ndarray, exposure: np.ndarray | None, labels: Labels = None) -> None:
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
    def sees(self) -> tuple[str, ...]:
        """What each raw output is computed from: "features", or "detached" for features without gradient."""
        return ("features",) * self.n_raw

    @classmethod
    @cache  # inspecting a signature takes longer than the rest of `make_head`
    def option_defaults(cls) -> JsonObject:
        """Every option of this likelihood with its default.

        >>> from ddpn.networks.heads import GaussianHead
        >>> GaussianHead.option_defaults()
        {'beta': 0.0}
        """
        parameters = inspect.signature(cls).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    @property
    def options(self) -> JsonObject:
        """The options that rebuild this head, as in `make_head(head.name, **head.options)`."""
        return {name: getattr(self, name) for name in self.option_defaults()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"


def _best(raws: Sequence[Tensor], loss: Callable[[Tensor], Tensor]) -> Tensor:
    """The raw outputs with the lowest loss; one that is not a number is the highest."""
    return min(raws, key=lambda raw: loss(raw).nan_to_num(torch.inf).item())


def promoted(raw: Tensor) -> Tensor:
    """Half precisions as float32: exp of a bfloat16 has two digits."""
    return raw.float() if raw.dtype in _LOW_PRECISION else raw


def check_beta(beta: float) -> None:
    """Raise a `ConfigError` if `beta` is not between 0 (the likelihood) and 1 (a plain fit of the mean)."""
    check_number("beta", beta, "a number in [0, 1]", is_number(beta) and 0.0 <= beta <= 1.0)


def fit(loss: Callable[[Tensor], Tensor], guess: Tensor, bounds: Sequence[tuple[float, float]] | None = None) -> Tensor:
    """The raw outputs (P,) within `bounds`, or some way around `guess`, that minimise the scalar `loss`."""
    bounds = bounds or [(x - _REACH - abs(x), x + _REACH + abs(x)) for x in guess.tolist()]

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
