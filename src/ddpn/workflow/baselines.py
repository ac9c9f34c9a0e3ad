"""What a model has to beat, fitted to the same rows: a constant law, a Poisson GLM, Poisson gradient boosting."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn import tensor_files
from ddpn.estimators import CountGLM
from ddpn.features import FeatureEncoder, dump, load
from ddpn.heads import make_head
from ddpn.workflow.boosting import BoostedTrees
from ddpn.workflow.sample import Sample

#: Laws that a constant may have; that which makes the training rows most likely is taken.
_CONSTANTS = ("poisson", "negative_binomial", "double_poisson")
#: A trace of ridge: coefficients stay finite where a rare level has zeros only, and move by less than anyone can see.
_RIDGE = 1e-4


class Baseline(Protocol):
    """Predicts a law for every row, and keeps itself in a folder."""

    def law(self, X: Any, exposure: np.ndarray | None) -> Distribution: ...

    def save(self, folder: Path) -> None: ...


@dataclass(frozen=True)
class ConstantLaw:
    """One law for all rows, by maximum likelihood; an exposure scales its location.

    >>> ConstantLaw.fit(Sample(None, np.array([0.0, 0.0, 0.0, 9.0, 11.0, 1.0]), None, None)).likelihood
    'negative_binomial'
    """

    likelihood: str
    raw: Tensor
    unit: float

    @classmethod
    def fit(cls, sample: Sample) -> Self:
        y = torch.from_numpy(sample.y)
        weight = None if sample.weight is None else torch.from_numpy(sample.weight)
        # Exposures near 1 keep rates where heads do not clamp them.
        unit = 1.0 if sample.exposure is None else float(np.mean(sample.exposure))
        exposure = None if sample.exposure is None else torch.from_numpy(sample.exposure / unit)
        found = [cls(name, make_head(name).start(y, weight, exposure), unit) for name in _CONSTANTS]
        each = torch.ones_like(y) if weight is None else weight
        return max(found, key=lambda law: float(each @ law.law(sample.X, sample.exposure, len(y)).log_prob(y)))

    def law(self, X: Any, exposure: np.ndarray | None, rows: int | None = None) -> Distribution:
        scale = None if exposure is None else torch.from_numpy(exposure / self.unit)
        return make_head(self.likelihood)(self.raw.expand(rows or len(X), -1), scale)

    def save(self, folder: Path) -> None:
        tensor_files.write(
            folder / "constant.safetensors", {"raw": self.raw}, {"likelihood": self.likelihood, "unit": self.unit}
        )

    @classmethod
    def load(cls, folder: Path) -> Self:
        tensors, info = tensor_files.read(folder / "constant.safetensors")
        return cls(info["likelihood"], tensors["raw"], info["unit"])


@dataclass(frozen=True)
class PoissonGLM:
    """A Poisson GLM with log link on standardised numbers and one indicator a level; missing values have their own."""

    encoder: FeatureEncoder
    glm: CountGLM

    @classmethod
    def fit(cls, sample: Sample) -> Self:
        encoder = FeatureEncoder().fit(sample.X, sample_weight=sample.weight)
        glm = CountGLM(likelihood="poisson", alpha=_RIDGE)
        inputs = encoder.transform(sample.X).astype(np.float64)
        return cls(encoder, glm.fit(inputs, sample.y, sample.weight, sample.exposure))

    def law(self, X: Any, exposure: np.ndarray | None) -> Distribution:
        return self.glm.predict_distribution(self.encoder.transform(X).astype(np.float64), exposure)

    def save(self, folder: Path) -> None:
        self.glm.save(folder / "glm")
        dump(self.encoder, folder / "features.skops")

    @classmethod
    def load(cls, folder: Path) -> Self:
        return cls(load(folder / "features.skops"), CountGLM.load(folder / "glm"))


#: By the names they have in tables.
BASELINES: dict[str, Any] = {"constant": ConstantLaw, "poisson_glm": PoissonGLM, "poisson_boosting": BoostedTrees}


def fit_baselines(sample: Sample, seed: int) -> dict[str, Baseline]:
    """All three, fitted to the same rows."""
    boosted = BoostedTrees.fit(sample.X, sample.y, sample.weight, sample.exposure, seed)
    with warnings.catch_warnings():
        # A baseline that is not quite at its maximum is still one; the user did not ask for its coefficients.
        warnings.simplefilter("ignore")
        return {
            "constant": ConstantLaw.fit(sample),
            "poisson_glm": PoissonGLM.fit(sample),
            "poisson_boosting": boosted,
        }


def load_baselines(folder: Path) -> dict[str, Baseline]:
    """Those that were saved in a folder."""
    return {name: kind.load(folder) for name, kind in BASELINES.items()}
