"""The boosted baseline is scikit-learn's own, with categories, exposures and weights; its file runs nothing."""

import json
import pickle
from functools import partial
from hashlib import sha256

import numpy as np
import polars as pl
import pytest
import skops.io
from ddpn.workflow.boosting import BoostedTrees
from sklearn.ensemble import HistGradientBoostingRegressor

from ddpn.errors import InputError

RNG = np.random.default_rng(2)
N = 500
WARD = RNG.choice(["A", "B", "C"], N)
X = pl.DataFrame({"x": RNG.normal(size=N), "ward": WARD.tolist(), "yes": RNG.random(N) < 0.5})
EXPOSURE, WEIGHT = RNG.uniform(0.5, 2.0, N), RNG.integers(1, 4, N).astype(float)
Y = RNG.poisson(EXPOSURE * np.exp(X["x"].to_numpy() + 2 * (WARD == "B"))).astype(float)


@pytest.fixture(scope="module")
def fitted() -> BoostedTrees:
    return BoostedTrees.fit(X, Y, WEIGHT, EXPOSURE, seed=1)


def test_it_is_scikit_learns(fitted):
    order = sorted(set(WARD.tolist()), key=lambda level: (-(level == WARD).sum(), level))
    plain = np.column_stack([X["x"], [order.index(level) for level in WARD], X["yes"]])
    trees = HistGradientBoostingRegressor(loss="poisson", categorical_features=[1], random_state=1)
    trees.fit(plain, Y / EXPOSURE, sample_weight=WEIGHT * EXPOSURE)
    assert fitted.law(X, EXPOSURE).mean.numpy() == pytest.approx(trees.predict(plain) * EXPOSURE)
    assert fitted.law(X, None).mean.numpy() == pytest.approx(trees.predict(plain))


def test_columns_may_come_in_another_order(fitted):
    other = X.select("yes", "x", "ward")
    assert (fitted.law(other, None).mean == fitted.law(X, None).mean).all()


def test_a_new_level_is_a_missing_one(fitted):
    new, missing = (fitted.law(X.with_columns(ward=pl.lit(v, dtype=pl.String)), None).mean for v in ("Z", None))
    assert (new == missing).all()


def test_more_levels_than_bins():
    many = pl.DataFrame({"id": [f"level {row % 300}" for row in range(900)]})
    fitted = BoostedTrees.fit(many, RNG.poisson(3.0, 900).astype(float), None, None)
    assert len(fitted.levels[0]) == 254
    assert (fitted.law(many, None).mean > 0).all()


def test_it_is_loaded_as_it_was_saved(fitted, tmp_path):
    fitted.save(tmp_path)
    again = BoostedTrees.load(tmp_path)
    assert (again.law(X, None).mean == fitted.law(X, None).mean).all()


def test_altered_files_are_refused(fitted, tmp_path):
    fitted.save(tmp_path)
    with (tmp_path / "boosting.skops").open("ab") as file:
        file.write(b"x")
    with pytest.raises(InputError, match=r"boosting\.skops must be as it was saved, got a wrong checksum"):
        BoostedTrees.load(tmp_path)
    (tmp_path / "boosting.skops").unlink()
    with pytest.raises(InputError, match="must be as it was saved"):
        BoostedTrees.load(tmp_path)


def test_a_file_with_other_types_is_not_even_built(fitted, tmp_path):
    fitted.save(tmp_path)
    for content in (skops.io.dumps(partial(print, "run")), pickle.dumps(fitted.trees)):
        (tmp_path / "boosting.skops").write_bytes(content)
        about = json.loads((tmp_path / "boosting.json").read_text()) | {"sha256": sha256(content).hexdigest()}
        (tmp_path / "boosting.json").write_text(json.dumps(about))
        with pytest.raises(InputError, match="must be as it was saved"):
            BoostedTrees.load(tmp_path)
