import numpy as np
import pytest
from scipy.stats import norm

from ddpn.estimators.coefficients import coefficient_table
from ddpn.runtime.errors import ConfigError

ESTIMATE, ERROR = np.array([0.5, -0.02, 3.0]), np.array([0.1, 0.5, np.nan])


def table(coverage=0.95):
    return coefficient_table(["log mu"] * 3, ["(intercept)", "age", "ward = B"], ESTIMATE, ERROR, coverage)


def test_tests_and_intervals_are_those_of_the_normal_distribution():
    found = table(0.9)
    np.testing.assert_allclose(found.z[:2], [5.0, -0.04])
    np.testing.assert_allclose(found.p[:2], 2 * norm.sf([5.0, 0.04]), rtol=1e-12)
    np.testing.assert_allclose(found.low[:2], norm.interval(0.9, ESTIMATE[:2], ERROR[:2])[0], rtol=1e-12)
    np.testing.assert_allclose(found.high[:2], norm.interval(0.9, ESTIMATE[:2], ERROR[:2])[1], rtol=1e-12)
    assert all(np.isnan(column[2]) for column in (found.z, found.p, found.low, found.high))


def test_it_reads_as_a_table():
    lines = str(table()).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0].split("  ")[0] == "parameter"
    assert "95% low" in lines[0]
    assert [line.split()[2] for line in lines[1:3]] == ["(intercept)", "age"]
    assert lines[3].split()[-5:] == ["nan"] * 5


def test_a_frame_has_the_same_columns():
    frame = table().to_pandas()
    assert list(frame) == ["parameter", "feature", "estimate", "std. error", "z", "p", "95% low", "95% high"]
    np.testing.assert_array_equal(frame["estimate"], ESTIMATE)


@pytest.mark.parametrize("coverage", [0.0, 1.0, 95])
def test_a_coverage_is_a_share(coverage):
    with pytest.raises(ConfigError, match="coverage must lie between 0 and 1, got"):
        table(coverage)
