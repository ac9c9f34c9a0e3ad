"""A fit and its predictions do not depend on the user's settings of torch: gradient mode, inference mode, dtype."""

from contextlib import AbstractContextManager, contextmanager

import numpy as np
import pytest
import torch

from ddpn import CountGLM
from ddpn.networks.backbones import MLP
from ddpn.networks.heads import make_head
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


def test_a_glm_is_the_same(setting, counts):
    expected = CountGLM(alpha=1e-3).fit(*counts).coef_
    with setting:
        found = CountGLM(alpha=1e-3).fit(*counts)
    np.testing.assert_array_equal(found.coef_, expected)
    assert np.isfinite(found.predict(counts[0])).all()
