import sys

import numpy as np
import pytest
from statsmodels.datasets import randhie

from ddpn.datasets.rand_health import rand_health
from ddpn.errors import ConfigError


def test_the_data_of_statsmodels():
    data, frame = rand_health(), randhie.load_pandas()
    np.testing.assert_array_equal(data.y, frame.endog)
    np.testing.assert_array_equal(data.X.matrix, frame.exog)
    assert data.X.names == tuple(frame.exog.columns)
    assert data.split.n == 20_190


def test_without_statsmodels(monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels.datasets", None)
    with pytest.raises(ConfigError, match=r'statsmodels must be installed .* pip install "ddpn\[data\]"'):
        rand_health()
