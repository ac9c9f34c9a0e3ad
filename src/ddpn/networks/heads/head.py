"""The base class of heads, which convert raw outputs to distributions and define the training objective."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ddpn.distributions.limits import apply_record_limits
from ddpn.distributions.parametric import ParametricDistribution
from ddpn.networks.heads.constant_fit import WeightedCounts, minimise_loss
from ddpn.rows.checks import Labels
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_number, is_number
from ddpn.storage.contents import JsonObject

_LOW_PRECISION = (torch.float16, torch.bfloat16)
#: Attributes that depend on `forward`. A subclass that overrides `forward` gets the defaults of `Head` for them.
_TIED_TO_FORWARD = {"loss", "loss_is_likelihood", "start"}
#: The step of central differences of gradients, which are exact to about 1e-11.
_DIFFERENCE_STEP = 1e-4
#: The smallest curvature, used if a loss is flat or not convex.
MIN_CURVATURE = 1e-6
#: The smallest curvature of log gamma and log alpha, whose curvature is at most about 1/2. With a smaller value, rows
#: without information stepped onto the bounds.
MIN_DISPERSION_CURVATURE = 0.05


class Head(ABC):
    """The base class of likelihoods. A head converts the raw outputs of a network to a distribution.

    It has options, but no trainable parameters. Raw outputs are unbounded numbers, one per parameter of the
    distribution, like the linear predictors of a GLM.

    A subclass sets `name` (its name in `HEADS`) and `n_raw` (the number of raw outputs per row), and implements
    `forward`. Other class attributes have defaults, given in parentheses:

    - `support`: the values of the distribution, a torch constraint (non-negative integers);
    - `parameter_names`: names of the raw outputs in tables of coefficients ("raw 0", "raw 1", ...);
    - `dispersion_outputs`: indices of raw outputs that are dispersions, which `CountGLM` keeps constant by default
      (none);
    - `location_is_mean`: True if the first raw output is the log of the exact mean (False);
    - `location_note`: a sentence that explains the first raw output if its name does not ("");
    - `is_count`: True for distributions of counts (True if `support` is discrete);
    - `has_glm`: True if `loss` is a negative log-likelihood, as a GLM with standard errors requires (True);
    - `exposure_is_total`: True if the exposure of a row is its total, the upper bound of its count, and must not be
      rescaled (False);
    - `is_baseline`: True if the baseline member `Constant` tries this likelihood, whatever the likelihood of the model
      (False);
    - `objective_options`: names of options that only `loss` uses. If a subclass overrides `forward` but not `loss`,
      setting them is an error (none);
    - `validation_score`: the default score that selects a network's best epoch, "crps" or "nll" ("crps").

    Options are keyword-only arguments of the constructor and are stored as attributes with the same names.

    Shape: `raw` (..., n_raw). `y` and `exposure` broadcast with raw.shape[:-1], typically (rows, 1) or (rows,
    networks).
    """

    name: ClassVar[str]
    n_raw: ClassVar[int]
    support: ClassVar[Any] = constraints.nonnegative_integer
    parameter_names: ClassVar[tuple[str, ...]]
    dispersion_outputs: ClassVar[tuple[int, ...]] = ()
    location_is_mean: bool = False
    location_note: str = ""
    is_count: ClassVar[bool] = True
    has_glm: ClassVar[bool] = True
    exposure_is_total: ClassVar[bool] = False
    is_baseline: ClassVar[bool] = False
    validation_score: ClassVar[str] = "crps"
    objective_options: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        attributes = vars(cls)
        if "sees" in attributes:
            raise TypeError(f"The property {cls.__name__}.sees is called projection_inputs since ddpn 0.4. Rename it.")
        if "n_raw" in attributes and "parameter_names" not in attributes:
            cls.parameter_names = tuple(f"raw {i}" for i in range(cls.n_raw))
        if "support" in attributes and "is_count" not in attributes:
            cls.is_count = bool(cls.support.is_discrete)
        if "forward" in attributes:  # the subclass has another distribution, so inherited shortcuts are wrong
            for name in _TIED_TO_FORWARD - attributes.keys():
                setattr(cls, name, vars(Head)[name])

    @abstractmethod
    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> Distribution:
        """Create the distribution of each row.

        Implementations apply the link functions. They must not transfer values from a GPU to the CPU.

        Parameters
        ----------
        raw : Tensor, shape (..., n_raw)
            Raw outputs of a network.
        exposure : Tensor, optional
            The exposure of each row, such as days observed, which multiplies the location. It broadcasts with
            raw.shape[:-1]. Default: 1.

        Returns
        -------
        Distribution, batch shape raw.shape[:-1]
        """

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """Compute the training objective of each row: by default -log p(y).

        It is computed in float64. For raw outputs in float32, formulas that are only as accurate as float32 may be used
        because they are faster.

        Parameters
        ----------
        raw, exposure
            As for `forward`.
        y : Tensor
            Observed counts, which broadcast with raw.shape[:-1].

        Returns
        -------
        Tensor, shape raw.shape[:-1]
            In the dtype of `raw`, but at least float32.
        """
        if type(self).loss is Head.loss:
            self._check_objective()
        dist: Any = self.forward(raw.double(), exposure)
        if raw.dtype != torch.float64 and hasattr(dist, "float32_log_prob"):
            return -dist.float32_log_prob(y).to(promote_precision(raw).dtype)
        return -dist.log_prob(y).to(promote_precision(raw).dtype)

    def _check_objective(self) -> None:
        """Raise a `ConfigError` if an option of `loss` is set but has no effect.

        This happens in a subclass that overrides `forward` but not `loss`.
        """
        owner: Any = next(kind for kind in type(self).__mro__ if "objective_options" in vars(kind))
        for name in self.objective_options:
            if getattr(self, name) != owner.option_defaults()[name]:
                kind = type(self).__name__
                message = f"has no effect in {kind}, which overrides forward but not loss and is trained on -log p"
                raise ConfigError(message, argument=name, remedy=f"Leave it out, or override loss in {kind} as well.")

    def sample_loss(self, raw: Tensor, sample: CountRows[object, Tensor]) -> Tensor:
        """Compute the loss of each row, taking bounds and censoring into account.

        Without bounds and censoring, it is `loss`. Otherwise it is the negative log-likelihood of the recorded count,
        computed in float64. Shape: `raw` (..., n_raw) -> (...). The fields of `sample` broadcast with raw.shape[:-1];
        its inputs and weights are ignored.
        """
        if sample.is_unrestricted:
            return self.loss(raw, sample.y, sample.exposure)
        dist = apply_record_limits(self.forward(raw.double(), sample.exposure), sample)
        return -dist.log_prob(sample.y.double()).to(promote_precision(raw).dtype)

    @torch.inference_mode(False)
    @torch.enable_grad()
    def gradient(self, raw: Tensor, sample: CountRows[object, Tensor]) -> Tensor:
        """Compute the derivative of each row's loss with respect to its raw outputs.

        The loss is `sample_loss`, without the weight of the row. `raw` and the result have shape (rows, n_raw), and the
        fields of `sample` have shape (rows,). The result is float64.
        """
        x = raw.detach().double().clone().requires_grad_()
        return torch.autograd.grad(self.sample_loss(x, sample).sum(), x)[0]

    @torch.inference_mode(False)
    @torch.enable_grad()
    def curvature(self, raw: Tensor, sample: CountRows[object, Tensor]) -> Tensor:
        """Compute a positive curvature of each row's loss with respect to each raw output, to limit optimisation steps.

        It is the expected second derivative (Fisher information) if the loss is the negative log-likelihood and the
        distribution provides the information, else the absolute second derivative. Bounds and censoring are ignored: as
        they only lower the curvature, the steps remain short enough. `raw` and the result have shape (rows, n_raw), and
        the fields of `sample` have shape (rows,). The result is float64.
        """
        x = raw.detach().double().clone().requires_grad_()
        dist, curvatures = self.forward(x, sample.exposure) if self.loss_is_likelihood else None, torch.zeros_like(x)
        if isinstance(dist, ParametricDistribution):
            for name, information in dist.information().items():
                parameter = getattr(dist, name)
                if parameter.requires_grad:  # not if the parameter is a known total
                    (slope,) = torch.autograd.grad(parameter.sum(), x, retain_graph=True)
                    curvatures += information.unsqueeze(1) * slope.square()
            curvatures[:, 1:].clamp_(min=MIN_DISPERSION_CURVATURE)
            return curvatures.clamp(min=MIN_CURVATURE)
        plain: CountRows[None, Tensor] = CountRows(None, sample.y, exposure=sample.exposure)
        for p, step in enumerate(_DIFFERENCE_STEP * torch.eye(self.n_raw).to(x)):
            higher, lower = (self.gradient(at, plain)[:, p] for at in (x + step, x - step))
            curvatures[:, p] = (higher - lower) / (2.0 * _DIFFERENCE_STEP)
        return curvatures.abs().clamp(
            min=MIN_CURVATURE
        )  # if a loss is concave, the size of its curvature still limits the step

    @property
    def loss_is_likelihood(self) -> bool:
        """True if `loss` is exactly the negative log-likelihood of the distribution."""
        return type(self).loss is Head.loss

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Return the raw outputs of an intercept-only fit, with which training starts.

        They minimise the weighted mean loss if all rows have the same raw outputs. The optimiser starts from the best
        of several guesses: 0, the mean of y / exposure or its log for the first raw output, and 0 or the log variance
        for the others. The search range is bounded, so the result is finite even if the loss has no minimum.

        Parameters
        ----------
        y : Tensor, shape (N,)
            Observed counts.
        weight, exposure : Tensor, shape (N,), optional
            The weight and the exposure of each row. Default: 1.

        Returns
        -------
        Tensor, shape (n_raw,)
            In float64.
        """
        rows = WeightedCounts(CountRows(None, y, weight, exposure))
        loss = rows.make_mean_loss(self.sample_loss)
        with torch.no_grad():
            best = _choose_lowest_loss(self._make_guesses(rows), loss)
        return minimise_loss(loss, best)

    def sample_start(self, sample: CountRows[object, Tensor]) -> Tensor:
        """Return the raw outputs of an intercept-only fit to counts that may be bounded or censored.

        The result has shape (n_raw,) and is float64. The fields of `sample` have shape (rows,); its inputs are ignored.

        Without bounds and censoring, the result is that of `start`. With bounds or censoring, the likelihood of the
        recorded counts is maximised from up to three points: the result of `start`, the same with 0 for all raw outputs
        but the first, and the result of `start` after censored counts are doubled. Several points are needed because
        recorded counts at a limit vary little: a dispersion fitted to them can lie on a plateau of the likelihood.
        """
        guess = self.start(sample.y, sample.weight, sample.exposure)
        if sample.is_unrestricted:
            return guess
        guesses = [guess, torch.cat([guess[:1], torch.zeros_like(guess[1:])])]
        if sample.limit is not None:
            raised = torch.where(sample.y >= sample.limit, 2.0 * sample.y + 1.0, sample.y)
            guesses.append(self.start(raised, sample.weight, sample.exposure))
        loss = WeightedCounts(sample).make_mean_loss(self.sample_loss)
        fits = [minimise_loss(loss, guess) for guess in guesses]
        with torch.no_grad():
            return _choose_lowest_loss(fits, loss)

    def _make_guesses(self, rows: WeightedCounts) -> list[Tensor]:
        """Return several guesses of the raw outputs, each of shape (n_raw,), from which `start` chooses the best.

        `rows` has the counts to which the raw outputs will be fitted.
        """
        rate = rows.y / rows.scale
        mean = rows.mean(rate)
        spread = rows.mean((rate - mean).square())
        logs = [x.clamp(min=1e-6).log() for x in (mean, spread)]
        zero = torch.zeros_like(mean)
        firsts, others = (zero, logs[0], mean), (zero, logs[1])
        return [torch.stack([first, *[other] * (self.n_raw - 1)]) for first in firsts for other in others]

    def check_targets(self, y: np.ndarray, exposure: np.ndarray | None, labels: Labels = None) -> None:
        """Raise an `InputError` for counts that are impossible under this likelihood. The default does nothing.

        Parameters
        ----------
        y : array, shape (N,)
            Observed counts.
        exposure : array, shape (N,), or None
            The exposure of each row.
        labels : sequence, optional
            Names of the rows in messages. Default: positions from 0.
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
        """The name of the likelihood of the corresponding GLM, or None if there is none."""
        return self.name if self.has_glm else None

    @property
    def projection_inputs(self) -> tuple[str, ...]:
        """For each raw output, the features from which it is computed: "features" or "detached".

        Detached features pass no gradient to the backbone. See `ddpn.networks.model.Projection`.
        """
        return ("features",) * self.n_raw

    @classmethod
    @cache  # inspecting a signature takes longer than the rest of `make_head`
    def option_defaults(cls) -> JsonObject:
        """Return the options of this likelihood with their default values.

        >>> from ddpn.networks.heads import GaussianHead
        >>> GaussianHead.option_defaults()
        {'beta': 0.0}
        """
        parameters = inspect.signature(cls).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    @property
    def options(self) -> JsonObject:
        """The options of this head by name; `make_head(head.name, **head.options)` creates an equal head."""
        return {name: getattr(self, name) for name in self.option_defaults()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"


def _choose_lowest_loss(raws: Sequence[Tensor], loss: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the vector of raw outputs in `raws` with the lowest loss; NaN counts as infinite."""
    return min(raws, key=lambda raw: loss(raw).nan_to_num(torch.inf).item())


def promote_precision(raw: Tensor) -> Tensor:
    """Convert raw outputs in half precision to float32, because the exp of a bfloat16 has only two accurate digits."""
    return raw.float() if raw.dtype in _LOW_PRECISION else raw


def check_beta(beta: float) -> None:
    """Raise a `ConfigError` if `beta` is not a number from 0 to 1."""
    check_number("beta", beta, "a number in [0, 1]", is_number(beta) and 0.0 <= beta <= 1.0)
