"""Generalised linear models (GLMs) as members, fitted by an exact optimiser.

A likelihood has one or more raw outputs: unbounded numbers that determine the distribution. In a GLM, each raw output
is constant or linear in the columns. The Double Poisson has two raw outputs: log mu and log gamma, where 1 / gamma is
the dispersion.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from ddpn.members.design import Design
from ddpn.members.head_member import HeadMember
from ddpn.members.linear import LinearFit, LinearPredictor, fit_linear
from ddpn.members.member import NotApplicableError, Task
from ddpn.networks.heads import Head, load_head, make_head
from ddpn.rows.count_rows import CountRows
from ddpn.rows.exposure import choose_exposure_unit, divide_exposure
from ddpn.runtime.deadlines import NO_LIMIT, Clock
from ddpn.storage.contents import JsonObject, arrays_from_bytes, arrays_to_bytes, json_to_bytes
from ddpn.tables.columns import ColumnTable
from ddpn.tables.encoding import TableEncoder, encoder_to_bytes, load_encoder
from ddpn.tables.schema import Schema

_FACTS, _ARRAYS, _ENCODER = "glm.json", "glm.safetensors", "encoder.json"


class GLM(HeadMember):
    """A GLM in which every parameter of the distribution, including the dispersion, is linear on its link scale.

    The inputs are standardised numbers, indicators of levels and indicators of missing values. Slopes have normal
    priors (a ridge penalty), which prevent extreme predictions when a table has few rows and many columns. To protect
    the mixture from rows far outside the training data, each raw output (linear predictor) is clipped to its range on
    the training rows.

    Parameters
    ----------
    head : Head
        The likelihood, which converts raw outputs to a distribution.
    linear : LinearPredictor
        The fitted linear function from a row to its raw outputs (linear predictors), such as log mu.
    unit : float
        The reference exposure: exposures are divided by this number.
    encoder : TableEncoder or Design
        Converts tables to a matrix. In the matrix of a `Design`, every categorical column has a reference level, as
        `CountGLM` needs it.
    low, high : array, shape (head.n_raw,), optional
        The bounds to which each raw output is clipped in predictions. Default: no bounds.
    """

    label = "GLM"
    complexity = 2
    #: The likelihood that is fitted by default.
    default_likelihood: ClassVar[str] = "double_poisson"
    #: Standard deviations of the normal priors of slopes, per standard deviation of a column: of the first raw output,
    #: usually the log mean, and of the others (`benchmarks/notes/glm_priors.md`).
    prior_deviations: ClassVar[tuple[float, float]] = (1 / 4, 1 / 16)
    #: The most rows, which are enough to determine a line, and the most columns. More columns would take minutes, and a
    #: line helps least with many columns.
    max_rows: ClassVar[float] = 20_000
    max_columns: ClassVar[float] = 300
    #: True if raw outputs are clipped to their range on the training rows.
    is_clipped: ClassVar[bool] = True

    def __init__(
        self,
        head: Head,
        linear: LinearPredictor,
        unit: float,
        encoder: TableEncoder | Design,
        *,
        low: np.ndarray | None = None,
        high: np.ndarray | None = None,
    ) -> None:
        self.head, self.linear, self.unit, self.encoder = head, linear, unit, encoder
        unbounded = np.full(head.n_raw, np.inf)
        self.low = -unbounded if low is None else low
        self.high = unbounded if high is None else high

    @classmethod
    def choose_options(cls, task: Task) -> dict[str, Any]:
        if task.head.glm_likelihood is None:
            raise NotApplicableError(f'likelihood="{task.head.name}" has no exact GLM')
        # A head of totals is used directly, because the total of all rows may be one of its options.
        head = task.head if task.head.exposure_is_total else make_head(task.head.glm_likelihood)
        families = dict.fromkeys(getattr(task.head, "families", ()))
        others = tuple(make_head(name) for name in families if name != head.name)
        return {"head": head, "other_heads": others, "is_rough": task.is_rough}

    @classmethod
    def fit(
        cls,
        train: CountRows,
        validation: CountRows | None,
        seed: int,
        clock: Clock = NO_LIMIT,
        *,
        head: Head | None = None,
        other_heads: Sequence[Head] = (),
        is_rough: bool = False,
    ) -> Self:
        """Fit the GLM with the likelihood `head`, with ridge penalties on the slopes.

        If `head` is None, the likelihood is `default_likelihood`, such as "double_poisson". If some counts are
        censored, GLMs with the likelihoods `other_heads` are fitted as well, and the GLM under which the recorded
        counts are most probable is returned. If `is_rough`, the optimiser stops early, which is accurate enough for
        predictions.

        If there are more than `max_rows` training rows, a random sample of `max_rows` of them is used. `seed` draws
        this sample. `validation` is ignored. Raise a `NotApplicableError` if there are more than `max_columns` inputs
        or if all counts are 0.
        """
        head = make_head(cls.default_likelihood) if head is None else head
        train = train.rows(train.has_weight)
        encoder, columns = TableEncoder(), np.shape(train.X)[1]  # as many inputs or more
        if columns <= cls.max_columns:
            columns = encoder.fit(train.X, train.y, train.weight).n_inputs
        if columns > cls.max_columns:
            raise NotApplicableError(f"it has {columns} inputs, but a GLM is fitted to at most {cls.max_columns:g}")
        if len(train) > cls.max_rows:
            chosen = np.random.default_rng(seed).choice(len(train), int(cls.max_rows), replace=False)
            train = train.rows(np.sort(chosen))
        if not train.y.any():
            raise NotApplicableError("it has no count above 0 to fit")
        unit = choose_exposure_unit(train, head.exposure_is_total)
        scaled = divide_exposure(train, unit)
        inputs = encoder.encode(train.X).astype(np.float64)
        # The family under which the recorded counts are most likely: counts beyond a limit follow from its shape alone,
        # and no score of recorded counts shows it.
        is_censored = scaled.limit is not None and bool((scaled.y >= scaled.limit).any())
        heads = [head, *(other for other in other_heads if is_censored and other.has_glm)]
        fits = [cls._fit_line(candidate, inputs, scaled, is_rough) for candidate in heads]
        best = _find_likeliest_fit(heads, fits, inputs, scaled) if len(heads) > 1 else 0
        if not fits[best].optimum.converged:
            # All copies of a cross-fitted member warn with the same sentence, which is therefore shown once.
            warnings.warn(
                f"The {cls.label} did not reach the maximum of its likelihood, so it may predict worse than it could. "
                "Its weight in the mixture allows for that.",
                UserWarning,
                stacklevel=2,
            )
        raw = fits[best].linear.raw(inputs)
        low, high = (raw.min(0), raw.max(0)) if cls.is_clipped else (None, None)
        return cls(heads[best], fits[best].linear, unit, encoder, low=low, high=high)

    @classmethod
    def _fit_line(cls, head: Head, inputs: np.ndarray, rows: CountRows, is_rough: bool) -> LinearFit:
        penalties = cls.compute_penalties(rows.weight_or_ones, head.n_raw)
        return fit_linear(head, inputs, rows, (True,) * head.n_raw, penalties, is_rough=is_rough)

    @classmethod
    def compute_penalties(cls, weight: np.ndarray, n_raw: int) -> list[float]:
        """Compute the ridge penalty on the slopes of each of the `n_raw` raw outputs, as a list of `n_raw` numbers.

        A penalty of alpha adds alpha / 2 times the sum of squared slopes (of standardised columns) to the mean loss of
        the rows. It corresponds to normal priors of the slopes with mean 0. Their standard deviations are given by the
        class attribute `prior_deviations`: one for the first raw output, and one for all others.

        `weight` has the sample weight of each row. For a prior with standard deviation s, alpha is 1 / (n s^2), where n
        is the number of rows. A row of weight 3 counts as three rows, so n is the sum of the weights. But if the
        effective sample size, (sum w)^2 / sum w^2, is larger than this sum, n is the effective sample size: weights
        that are normalised may have a small sum.
        """
        effective_rows = max(weight.sum(), weight.sum() ** 2 / (weight @ weight))
        first, others = (1.0 / (effective_rows * deviation**2) for deviation in cls.prior_deviations)
        return [first] + [others] * (n_raw - 1)

    @property
    def schema(self) -> Schema:
        return self.encoder.schema_

    @property
    def levels(self) -> Mapping[str, Sequence[str]]:
        return self.encoder.levels

    def raw(self, X: ColumnTable, exposure: np.ndarray | None = None) -> Tensor:
        """Compute the raw outputs (linear predictors) of each row, such as log mu and log gamma.

        Shape: (rows, 1, head.n_raw). The second axis has length 1 because a GLM predicts one distribution per row.
        """
        inputs = self.encoder.encode(X).astype(np.float64)
        raw = np.clip(self.linear.raw(inputs), self.low, self.high)
        return torch.from_numpy(raw).unsqueeze(1)

    def state(self) -> dict[str, bytes]:
        facts: JsonObject = {"head": self.head.name, "options": self.head.options, "unit": self.unit}
        files = {_ARRAYS: arrays_to_bytes(**self.linear._asdict(), low=self.low, high=self.high)}
        if isinstance(self.encoder, Design):
            facts["design"] = self.encoder.as_dict()
        else:
            files[_ENCODER] = encoder_to_bytes(self.encoder)
        return files | {_FACTS: json_to_bytes(facts)}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        facts, arrays = json.loads(files[_FACTS]), arrays_from_bytes(files[_ARRAYS])
        is_design = "design" in facts
        encoder = Design.from_dict(facts["design"]) if is_design else load_encoder(files[_ENCODER], _ENCODER)
        return cls(
            load_head(facts["head"], facts["options"]),
            LinearPredictor(*(arrays[name] for name in LinearPredictor._fields)),
            facts["unit"],
            encoder,
            low=arrays["low"],
            high=arrays["high"],
        )

    def get_facts(self) -> JsonObject:
        return {"likelihood": self.head.name, "coefficients": int(self.linear.slopes.size + self.linear.base.size)}


def _find_likeliest_fit(heads: Sequence[Head], fits: Sequence[LinearFit], inputs: np.ndarray, sample: CountRows) -> int:
    """Return the index of the fit under which the counts in `sample` have the highest weighted log-likelihood.

    `fits` has one fit per likelihood in `heads`. `inputs` is the matrix to which they were fitted, of shape (rows,
    columns), and `sample` has the counts of its rows.
    """
    rows, weight = sample.replace(X=None).map(torch.from_numpy), sample.weight_or_ones
    with torch.no_grad():
        losses = [
            head.sample_loss(torch.from_numpy(fit.linear.raw(inputs)), rows).numpy()
            for head, fit in zip(heads, fits, strict=True)
        ]
    return int(np.argmin([weight @ loss for loss in losses]))


class PoissonGLM(GLM):
    """A Poisson regression with log link, the usual model to compare others with.

    A small ridge penalty, the class attribute `alpha`, keeps the coefficients of rare levels finite. The likelihood is
    always Poisson, even if other members have another one.

    Parameters
    ----------
    head, linear, unit, encoder, low, high
        As for `GLM`.
    """

    label = "Poisson GLM"
    complexity = 1
    is_default = False
    default_likelihood = "poisson"
    #: The ridge penalty on slopes, relative to the mean loss over the rows.
    alpha: ClassVar[float] = 1e-4
    max_rows, max_columns = float("inf"), 1000
    is_clipped = False

    @classmethod
    def choose_options(cls, task: Task) -> dict[str, Any]:
        return {}

    @classmethod
    def compute_penalties(cls, weight: np.ndarray, n_raw: int) -> list[float]:
        return [cls.alpha] * n_raw
