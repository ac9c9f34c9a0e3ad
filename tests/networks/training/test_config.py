"""Settings are validated when made, survive JSON, and give the learning rate of every step."""

import json
import math

import numpy as np
import pytest

from ddpn.networks.training import TrainingConfig
from ddpn.runtime.errors import ConfigError

BAD = {
    "epochs": ("an integer of at least 1", [0, -1, 1.5, "10", None, True]),
    "batch_size": ("an integer of at least 1", [0, 2.0, None, False]),
    "accumulate": ("an integer of at least 1", [0, 0.5]),
    "patience": ("an integer of at least 1", [0, 1.5, "never", True]),
    "lr": ("finite and positive", [0.0, -1e-3, math.inf, math.nan, "fast", None, True]),
    "weight_decay": ("finite and at least 0", [-0.1, math.inf, math.nan, None]),
    "clip": ("None or finite and positive", [0.0, -1.0, math.inf, math.nan, "5"]),
    "warmup": (r"in \[0, 1\)", [-0.1, 1.0, math.nan, None]),
    "ema": (r"in \[0, 1\)", [-0.1, 1.0, 2, math.nan, None]),
    "schedule": ("'cosine' or 'constant'", ["linear", None, ["cosine"]]),
    "score": ("'nll' or 'crps'", ["loss", None]),
    "precision": ("'float32' or 'bf16'", ["fp16", None]),
    "seeds": ("a tuple of one integer", [(), 3, None, "ab", [0, 1], (0.5,), (True,)]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_values_are_refused(name):
    condition, values = BAD[name]
    for value in values:
        with pytest.raises(ConfigError, match=f"^{name} must be {condition}.*, got ") as caught:
            TrainingConfig(**{name: value})
        assert f"got {value!r}." in str(caught.value)


def test_every_setting_has_a_bad_value_here():
    assert set(BAD) == set(TrainingConfig().as_dict())


def test_it_is_made_of_plain_values():
    config = TrainingConfig(epochs=np.int64(7), lr=0.1 + 0.2, clip=None, patience=3, score="crps", seeds=(4, 2**31 - 2))
    known = json.loads(json.dumps(config.as_dict()))
    assert TrainingConfig(**known | {"seeds": tuple(known["seeds"])}) == config


def test_warm_up_rises_evenly_to_lr():
    config = TrainingConfig(lr=1.0, warmup=0.1, schedule="constant")
    rates = [config.lr_at(step, 40) for step in range(40)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[4:] == [1.0] * 36


def test_the_cosine_falls_from_lr_to_nearly_nothing():
    config = TrainingConfig(lr=2.0, warmup=0.0)
    assert config.lr_at(0, 100) == 2.0
    assert config.lr_at(25, 100) == pytest.approx(1.0 + math.sqrt(0.5))
    assert config.lr_at(50, 100) == pytest.approx(1.0)
    # 1 + cos(pi - e) is e^2 / 2.
    assert config.lr_at(99, 100) == pytest.approx((math.pi / 100) ** 2 / 2, rel=1e-3)


def test_the_cosine_begins_where_warm_up_ends():
    config = TrainingConfig(lr=1.0, warmup=0.2)
    rates = [config.lr_at(step, 50) for step in range(50)]
    assert rates[10] == max(rates) == 1.0
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[30] == pytest.approx(0.5)
