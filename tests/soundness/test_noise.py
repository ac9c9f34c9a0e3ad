"""Test that on pure noise a model does not believe that it has learned anything."""

import numpy as np
import pytest

from ddpn import CountRegressor
from ddpn.calibration.calibrate import calibrate
from ddpn.members.constant import Constant
from ddpn.metrics import crps
from ddpn.pipeline import PipelineOptions
from ddpn.predictor import Predictor
from ddpn.rows.count_range import CountRange
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.time_plan import Schedule

#: Fresh rows of every table.
FRESH = 2000
#: Mean and inverse dispersion of the Negative Binomial counts: their variance is 4 + 16 / 2.
MEAN, SIZE = 4.0, 2.0


def simulate_noise(rows: int, columns: int, levels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate columns and counts that have nothing to do with each other; with `levels`, columns of text."""
    rng = np.random.default_rng(seed)
    y = rng.negative_binomial(SIZE, SIZE / (SIZE + MEAN), rows).astype(float)
    if levels:
        return np.array([f"level {k}" for k in range(levels)], dtype=object)[
            rng.integers(0, levels, (rows, columns))
        ], y
    return rng.normal(size=(rows, columns)), y


def list_scores(blocks) -> np.ndarray:
    return np.concatenate([np.asarray(crps(dist, y)) for dist, y in blocks])


def measure_fit(rows: int, columns: int, levels: int, seed: int) -> dict[str, float]:
    """Measure CRPS of the default model on held-out rows of its copies and on fresh rows, and its coverage there."""
    X, y = simulate_noise(rows + FRESH, columns, levels, seed)
    model = CountRegressor(random_state=seed)
    schedule = Schedule(steps=("members",))
    fitted = model.fit_rows(CountRows(X[:rows], y[:rows]), None, CountRange(), PipelineOptions(), schedule)
    predictor, new, held_out = model.predictor_, CountRows(X[rows:], y[rows:]), fitted.predictions
    predictor.calibration = calibrate(held_out, seed=seed).calibration
    out_of_fold, fresh = (
        list_scores((dist, held_out.rows.y[index]) for _, index, dist in held_out.blocks()),
        list_scores((dist, block.y) for dist, block in predictor.iter_recorded_blocks(new)),
    )
    constant = Predictor({"constant": Constant.fit(CountRows(X[:rows], y[:rows]), None, seed)})
    low, high = np.asarray(model.predict_interval(new.X, coverage=0.9)).T
    error = np.sqrt(out_of_fold.var() / rows + fresh.var() / FRESH)
    return {
        "difference": (out_of_fold.mean() - fresh.mean()) / error,
        "loss": fresh.mean() / list_scores((dist, block.y) for dist, block in constant.iter_recorded_blocks(new)).mean()
        - 1.0,
        "coverage": ((low <= new.y) & (new.y <= high)).mean(),
    }


#: Rows, columns, and levels of columns of text; those that every run of the tests has come first.
TABLES = [(80, 5, 0), (300, 2, 150), (150, 2000, 0), (300, 20, 0), (1000, 200, 0)]
MANY = [
    pytest.mark.slow,
    pytest.mark.proof("Truth", "on columns that have nothing to do with the counts nothing is learned"),
]


# A GLM of 300 levels and as many rows has no maximum that a search reaches, and says so.
@pytest.mark.filterwarnings("ignore:The mixture is fitted without GLM", "ignore:The GLM did not reach")
@pytest.mark.parametrize(
    ("rows", "columns", "levels", "seeds"),
    [
        *((*table, 1) for table in TABLES[:2]),
        *(pytest.param(*table, 8, marks=MANY) for table in TABLES),
    ],
)
def test_nothing_is_learned_from_noise(rows, columns, levels, seeds, record_proof):
    measures = [measure_fit(rows, columns, levels, seed) for seed in range(seeds)]
    mean = {name: np.mean([one[name] for one in measures]) for name in measures[0]}
    # The difference is in standard errors: three of a mean of so many.
    assert abs(mean["difference"]) < 3.0 / np.sqrt(seeds), measures
    assert mean["loss"] < 0.02, measures
    assert 0.87 <= mean["coverage"] <= 0.95, measures
    record_proof(f"{seeds} tables of {rows} rows", f"90% intervals cover {mean['coverage']:.1%} of fresh rows")
