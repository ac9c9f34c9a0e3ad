"""A fit and its predictions do not depend on the user's settings of torch: gradient mode, inference mode, dtype."""

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import pytest
import torch

from ddpn import CountGLM, DDPNRegressor
from ddpn.metrics import crps
from ddpn.networks.backbones import MLP
from ddpn.networks.heads import HEADS, make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import Sample, TrainingConfig, fit


@contextmanager
def float64_by_default():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


SETTINGS = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode, "float64": float64_by_default}


@pytest.fixture(params=SETTINGS.values(), ids=SETTINGS.keys())
def setting(request) -> AbstractContextManager[None]:
    return request.param()


@pytest.fixture(scope="module")
def rows(counts, exposures) -> dict[str, np.ndarray]:
    return {"X": counts[0], "y": counts[1], "exposure": exposures, "sample_weight": np.arange(90) % 3}


def results(model: DDPNRegressor | CountGLM, rows: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What a fit to `rows` predicts for them, and its score."""
    model.fit(**rows)
    inputs = {"X": rows["X"], "exposure": rows["exposure"]}
    dist = model.predict_distribution(**inputs)
    return [model.predict(**inputs), crps(dist, rows["y"]).numpy()]


@pytest.fixture(scope="module", params=["double_poisson", "gaussian", "glm"])
def usual(request, quick, rows) -> tuple[DDPNRegressor | CountGLM, list[np.ndarray]]:
    """A model, and its results with torch's usual settings."""
    is_glm = request.param == "glm"
    model = CountGLM(alpha=1e-3) if is_glm else quick(likelihood=request.param, epochs=2, validation=0.2)
    return model, results(model, rows)


def test_a_fit_gives_the_same_results(usual, rows, setting):
    model, expected = usual
    with setting:
        found = results(model, rows)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    # And it can be used after the setting has ended.
    np.testing.assert_array_equal(model.predict(rows["X"], exposure=rows["exposure"]), expected[0])


#: One hurdle head, of the cheapest base: the others share its code.
INTERCEPTS = [
    name
    for name in HEADS
    if not HEADS[name].exposure_is_total and name not in ("hurdle_negative_binomial", "hurdle_double_poisson")
]


@pytest.fixture(scope="module", params=INTERCEPTS)
def intercept(request, rows) -> tuple[Callable[[], torch.Tensor], torch.Tensor]:
    """A function that fits it, and what it gives with torch's usual settings."""
    y, weight, exposure = (torch.from_numpy(rows[part][:9]) for part in ("y", "sample_weight", "exposure"))

    def start() -> torch.Tensor:
        return make_head(request.param).start(y, weight, exposure)

    return start, start()


def test_an_intercept_is_the_same(intercept, setting):
    start, expected = intercept
    with setting:
        found = start()
    assert torch.equal(found, expected)


def trained() -> CountModel:
    x = torch.linspace(-1.0, 1.0, 24, dtype=torch.float32).reshape(12, 2)
    model = CountModel(MLP(n_in=2, hidden=(4,), members=2), make_head("double_poisson", gamma="shared"), 2)
    model.reset(seeds=(0, 1))
    fit(model, Sample(x, torch.arange(12)), Sample(x, torch.arange(12)), TrainingConfig(epochs=2, seeds=(0, 1)))
    return model


def test_a_model_that_was_built_under_the_setting_is_trained_in_float32(setting):
    with setting:
        found = trained().state_dict()
    for name, expected in trained().state_dict().items():
        assert found[name].dtype == torch.float32
        assert torch.equal(found[name], expected), name
