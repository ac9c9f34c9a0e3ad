import sys

import numpy as np
import pytest
from statsmodels.datasets import randhie

from ddpn.datasets.rand_health import rand_health
from ddpn.errors import ConfigError


def test_the_data_of_statsmodels():
    data, frame = rand_health(), randhie.load_pandas()
    np.testing.assert_array_equal(data.y, frame.endog)
    np.testing.assert_array_equal(data.X.to_numpy(), frame.exog)
    assert data.X.columns == list(frame.exog.columns)
    assert data.split.n == 20_190


def test_without_statsmodels(monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels.datasets.randhie", None)
    with pytest.raises(ConfigError, match=r"ddpn\[data\] is not installed"):
        rand_health()
