"""The GLM as a member: exact on the training rows, bounded beyond them, and not applicable everywhere."""

import numpy as np
import pytest
import statsmodels.api as sm

from ddpn import CountGLM
from ddpn.members.glm import GLM, PoissonGLM
from ddpn.members.member import NotApplicableError, Task
from ddpn.networks.heads import make_head
from ddpn.sample import Sample
from ddpn.tables.encoding import FeatureEncoder


@pytest.fixture(scope="module")
def line() -> Sample:
    """200 rows whose log mean is a line."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3))
    return Sample(X, rng.poisson(np.exp(0.5 + 0.6 * X[:, 0])).astype(float))


def raw(member: GLM, X: np.ndarray) -> np.ndarray:
    return member.raw(X)[:, 0].numpy()


def test_it_is_the_glm_of_the_encoded_rows_and_goes_no_further(line):
    member = GLM.like(Task(make_head("double_poisson", beta=0.5))).fit(line, None, seed=0)
    encoded = FeatureEncoder().fit(line.X).transform(line.X).astype(float)
    glm = CountGLM(alpha=1e-3).fit(encoded, line.y)
    dist = glm.predict_distribution(encoded).components
    expected = np.c_[dist.mu.log(), dist.gamma.log()]
    assert raw(member, line.X) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    far = raw(member, 50.0 * line.X)
    assert far.max(0) == pytest.approx(expected.max(0))
    assert far.min(0) == pytest.approx(expected.min(0))


@pytest.mark.parametrize("case", ["columns", "zeros", "zeros among those drawn"])
def test_where_it_cannot_be_fitted(line, monkeypatch, case):
    words = "3 inputs, more than the 2" if case == "columns" else "no count above 0"
    if case == "columns":
        monkeypatch.setattr(GLM, "max_columns", 2)
        sample = line
    else:
        sample = line.replace(y=np.zeros(200))
    if case == "zeros among those drawn":
        monkeypatch.setattr(GLM, "max_rows", 10)
        drawn = np.random.default_rng(0).choice(200, 10, replace=False)
        sample.y[np.setdiff1d(np.arange(200), drawn)[0]] = 7.0
    with pytest.raises(NotApplicableError, match=words):
        GLM(make_head("poisson")).fit(sample, None, seed=0)


def test_the_poisson_glm_is_that_of_statsmodels(mixed_sample):
    X, y, weight, exposure = mixed_sample.X, mixed_sample.y, mixed_sample.weight, mixed_sample.exposure
    member = PoissonGLM.like(Task(make_head("double_poisson"))).fit(mixed_sample, None, seed=0)
    age = X["age"].to_numpy()
    missing = np.isnan(age)
    columns = [np.ones(250), X["x"], np.where(missing, 0.0, age), missing, X["ward"] == "B", X["ward"] == "C"]
    design = np.column_stack([np.asarray(column, dtype=float) for column in [*columns, X["smokes"]]])
    glm = sm.GLM(y, design, sm.families.Poisson(), offset=np.log(exposure), freq_weights=weight).fit()
    # Apart from the trace of ridge.
    assert member.distribution(X, exposure).mean.numpy()[:, 0] == pytest.approx(glm.fittedvalues, rel=5e-3)
    assert not PoissonGLM.is_clipped


@pytest.mark.parametrize("kind", [GLM, PoissonGLM])
def test_constant_and_duplicated_columns_change_no_prediction(line, kind):
    sample = line.rows(np.resize(np.arange(200), 1500))
    plain = kind(make_head("poisson")).fit(sample, None, seed=0)
    constant = np.c_[sample.X, np.full(1500, 7.3)]
    assert raw(kind(make_head("poisson")).fit(sample.replace(X=constant), None, seed=0), constant) == pytest.approx(
        raw(plain, sample.X), abs=1e-9
    )
    doubled = np.c_[sample.X, sample.X]
    found = kind(make_head("poisson")).fit(sample.replace(X=doubled), None, seed=0)
    # The penalty of two equal columns is half of that of one.
    assert raw(found, doubled) == pytest.approx(raw(plain, sample.X), abs=1e-2)
