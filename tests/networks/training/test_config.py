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


def test_the_rate_rises_evenly_and_falls_along_a_cosine_to_nearly_nothing():
    steady, falling = (TrainingConfig(lr=1.0, warmup=0.2, schedule=schedule) for schedule in ("constant", "cosine"))
    constant, cosine = ([config.lr_at(step, 50) for step in range(50)] for config in (steady, falling))
    assert constant == pytest.approx([step / 11 for step in range(1, 11)] + [1.0] * 40)
    assert cosine == pytest.approx(constant[:10] + [0.5 * (1 + math.cos(math.pi * step / 40)) for step in range(40)])
