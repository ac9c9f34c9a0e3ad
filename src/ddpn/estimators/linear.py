"""Linear members beside the networks: the exact GLM, with as much of the mixture as validation rows leave to it.

A network needs rows to learn a line that a GLM finds at once. Where rows are few and noisy, the mixture of both is
better than either; where lines do not fit, the GLM must stay out.
"""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from torch import Tensor

from ddpn.distributions import Mixture
from ddpn.errors import ConfigError, InputError
from ddpn.estimators.glm import PARAMETERS, CountGLM, Linear
from ddpn.estimators.inputs import Targets
from ddpn.features import FeatureEncoder, encoder_bytes, encoder_from_bytes
from ddpn.heads import Head
from ddpn.metrics import crps

WEIGHTS, ENCODER = "linear.safetensors", "linear.skops"
#: Linear members for each network that are tried; the last gives them half of the mixture.
SHARES = (0.2, 0.4, 1.0)
#: Ridge of the GLM: with less, a rare level or a far row ran away on one of five small sets, and more helped on none.
_RIDGE = 1e-3
#: A line is known from so many rows; more columns would take minutes, and are where a line helps least.
_MAX_ROWS, _MAX_COLUMNS = 20_000, 300


class LinearMembers(NamedTuple):
    """A GLM of standardised inputs; its raw numbers stay within those of the training rows."""

    encoder: FeatureEncoder
    linear: Linear
    low: np.ndarray
    high: np.ndarray
    copies: int = 0

    def one(self, inputs: np.ndarray) -> Tensor:
        """Raw numbers of encoded rows. Shape: (rows, 1, P)."""
        raw = np.clip(self.linear.raw(inputs.astype(np.float64)), self.low, self.high)
        return torch.from_numpy(raw).unsqueeze(1)

    def raw(self, X: Any) -> Tensor:
        """Raw numbers of each copy. Shape: (rows, copies, P)."""
        return self.one(self.encoder.transform(X)).expand(-1, self.copies, -1)

    def files(self) -> dict[str, bytes]:
        """To be saved."""
        arrays = {**self.linear._asdict(), "low": self.low, "high": self.high, "copies": np.array([self.copies])}
        plain = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
        return {WEIGHTS: save_arrays(plain), ENCODER: encoder_bytes(self.encoder)}


def restored(files: dict[str, bytes], path: Path) -> LinearMembers | None:
    """What `files` gave; none where there was nothing."""
    if WEIGHTS not in files:
        return None
    try:
        arrays = load_arrays(files[WEIGHTS])
        linear = Linear(*(arrays[name] for name in Linear._fields))
        encoder = encoder_from_bytes(files[ENCODER], str(path / ENCODER))
        return LinearMembers(encoder, linear, arrays["low"], arrays["high"], int(arrays["copies"][0]))
    except (KeyError, SafetensorError) as error:
        raise InputError(f"{path / WEIGHTS} must fit the manifest, got {error}. Save the model again.") from None


def check_linear(likelihood: str, hidden: tuple[int, ...]) -> None:
    """Whether there is a GLM to mix in."""
    if likelihood not in PARAMETERS:
        raise ConfigError(
            f'with_glm must be False with likelihood="{likelihood}", which has no exact GLM, got True. Drop it.'
        )
    if not hidden:
        raise ConfigError("with_glm must be False without hidden layers, as the model is linear, got True. Drop it.")


def fit_linear(X: Any, found: Targets, used: np.ndarray, head: Head, encoder: FeatureEncoder) -> LinearMembers | None:
    """The GLM of the `used` rows, no copy of it yet; none where there are too many columns or no count above 0."""
    weight = used * (np.ones(len(found.y)) if found.weight is None else found.weight)
    encoder.fit(X, found.y, weight)
    rows = np.flatnonzero(weight > 0)
    if len(rows) > _MAX_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(rows, _MAX_ROWS, replace=False))
    if len(encoder.get_feature_names_out()) > _MAX_COLUMNS or not found.y[rows].any():
        return None
    inputs = encoder.transform(X)[rows].astype(np.float64)
    # A parameter that no row moves in the networks, a gamma shared by all, is an intercept here.
    dispersion = "constant" if "nothing" in head.sees else "linear"
    glm = CountGLM(likelihood=head.name, dispersion=dispersion, alpha=_RIDGE)
    exposure = None if found.exposure is None else found.exposure[rows]
    with warnings.catch_warnings():
        # One that is not quite at its maximum is judged by validation rows like any other.
        warnings.simplefilter("ignore")
        glm.fit(inputs, found.y[rows], weight[rows], exposure)
    raw = glm._linear.raw(inputs)
    return LinearMembers(encoder, glm._linear, raw.min(0), raw.max(0))


def copies_allowed(networks: Tensor, linear: Tensor, head: Head, found: Targets) -> int:
    """How many linear members validation rows allow: the most that are not clearly worse than none.

    Worse by more than one standard error of the paired difference in CRPS is clearly worse (the rule of Breiman,
    Friedman, Olshen and Stone, 1984, for the simplest model that is as good). The best would be too few: the networks
    have chosen their epochs by the same rows, and look better on them than they are.

    Shape: networks (rows, M, P), linear (rows, 1, P).
    """
    y = torch.from_numpy(found.y)
    exposure = None if found.exposure is None else torch.from_numpy(found.exposure).unsqueeze(1)
    weight = np.ones(len(found.y)) if found.weight is None else found.weight
    share, allowed = weight / weight.sum(), 0

    def scores(copies: int) -> np.ndarray:
        raw = torch.cat([networks, linear.expand(-1, copies, -1)], dim=1)
        return crps(Mixture(head(raw, exposure)), y).double().numpy()

    alone = scores(0)
    for more in SHARES:
        copies = max(1, round(more * networks.shape[1]))
        worse = scores(copies) - alone
        mean = share @ worse
        if mean <= np.sqrt(np.square(share) @ np.square(worse - mean)):
            allowed = copies
    return allowed
