"""Share predictions of exported files beside those of the model itself."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from ddpn.export import export_onnx
from ddpn.export.families import MAX_GRID_COUNT
from ddpn.members.glm import GLM
from ddpn.members.linear import LinearPredictor
from ddpn.networks.heads import make_head
from ddpn.predictor import Predictor
from ddpn.tables.encoding import FeatureEncoder

LEVELS = (0.01, 0.1, 0.9, 0.99)
#: The parity that is promised: relative for moments, absolute for probabilities. Quantiles are equal.
PARITY = 1e-5


@pytest.fixture(scope="session")
def run_file() -> Callable[..., dict[str, np.ndarray]]:
    """Predict with ONNX Runtime."""
    pytest.importorskip("onnx", reason="the extra export is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="the extra export is not installed")

    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # more would wait for each other in busy loops
    options.enable_mem_reuse = False  # to plan it takes longer than all else; the documentation's example has defaults

    @lru_cache(maxsize=1)
    def session(content: bytes):
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(path, feeds: dict[str, Any]) -> dict[str, np.ndarray]:
        loaded = session(path.read_bytes())
        return dict(zip([output.name for output in loaded.get_outputs()], loaded.run(None, feeds), strict=True))

    return run


@pytest.fixture(scope="session")
def make_feeds() -> Callable[..., dict[str, Any]]:
    """Make the inputs of a file from a table: NaN and empty text where a cell is missing."""
    return _make_feeds


def _make_feeds(X: pl.DataFrame, **more: Any) -> dict[str, Any]:
    feeds: dict[str, Any] = {}
    for column in X.iter_columns():
        if column.dtype == pl.String:
            feeds[column.name] = np.array(column.fill_null("").to_list(), dtype=object)
        else:
            feeds[column.name] = column.cast(pl.Float64).fill_null(np.nan).to_numpy().astype(np.float64)
    return feeds | {name: np.asarray(values) for name, values in more.items() if values is not None}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "model.onnx"


@pytest.fixture
def assert_parity(run_file, file):
    """Export a predictor and compare every output with what it predicts itself."""

    def compare(predictor: Predictor, X: pl.DataFrame, exposure=None, upper=None, coverage=0.9, groups=None) -> None:
        export_onnx(predictor, file, quantiles=LEVELS, coverage=coverage, pmf_up_to=40, overwrite=True)
        more = {"exposure": exposure, "upper_bound": upper}
        out = run_file(file, _make_feeds(X, **more, **({} if groups is None else groups)))
        with torch.no_grad():
            dist = predictor.distribution(X, exposure, upper=upper)
            labels = (
                None if groups is None else predictor.calibration.groups.read_labels(X, next(iter(groups.values())))
            )
            _assert_same(out, dist, predictor.wrap(dist, groups=labels).interval_with_probability(coverage))

    return compare


def _assert_same(out: dict[str, np.ndarray], dist: Any, interval: Any) -> None:
    for name in ("mean", "variance", "aleatoric"):
        np.testing.assert_allclose(out[name], getattr(dist, name).numpy(), rtol=PARITY, err_msg=name)
    # The epistemic part may be a rounding error of the whole.
    gap = np.abs(out["epistemic"] - dist.epistemic.numpy())
    assert (gap <= PARITY * dist.epistemic.numpy() + 1e-9 * dist.variance.numpy()).all()
    counts = {"median": 0.5, **{f"q{level:g}": level for level in LEVELS}}
    exact = {name: dist.icdf(torch.full_like(dist.mean, level)) for name, level in counts.items()}
    for name, values in {**exact, "lower": interval[0], "upper": interval[1]}.items():
        far = values.numpy() > MAX_GRID_COUNT
        np.testing.assert_array_equal(out[name], np.where(far, np.nan, values.numpy()), err_msg=name)
    np.testing.assert_allclose(out["interval_probability"], interval[2].numpy(), atol=PARITY, rtol=0.0)
    steps = torch.arange(out["pmf"].shape[1], dtype=torch.float64).unsqueeze(1)
    pmf = dist.log_prob(steps.expand(-1, len(out["mean"]))).exp().T.numpy()
    np.testing.assert_allclose(out["pmf"], pmf, atol=PARITY, rtol=0.0)
    np.testing.assert_allclose(out["pmf_mass"], pmf.sum(1), atol=PARITY, rtol=0.0)


@pytest.fixture(scope="session")
def make_linear_member() -> Callable[..., GLM]:
    """Make a member whose raw outputs vary by `reach` around moderate values: it needs no fit."""

    def make(likelihood: Any, reach: float, seed: int = 0, unit: float = 1.0) -> GLM:
        rng, head = np.random.default_rng(seed), make_head(likelihood)
        encoder = FeatureEncoder().fit(pl.DataFrame({"a": [-1.0, 0.0, 1.0], "b": [1.0, -1.0, 0.0]}))
        slopes = reach * rng.normal(size=(head.n_raw, 2))
        linear = LinearPredictor(np.zeros(2), np.ones(2), slopes, rng.normal(size=head.n_raw) * 0.5)
        return GLM(head, linear, unit, encoder=encoder)

    return make


@pytest.fixture(scope="session")
def draw_rows() -> Callable[..., pl.DataFrame]:
    """Draw random rows for `make_linear_member`."""

    def make(rows: int, seed: int = 1) -> pl.DataFrame:
        rng = np.random.default_rng(seed)
        return pl.DataFrame({"a": rng.normal(size=rows), "b": rng.normal(size=rows)})

    return make
