"""The same rows have the same predictions, whatever sort of table they come from."""

import numpy as np
import polars as pl
import pytest


@pytest.fixture(scope="module")
def zones() -> pl.DataFrame:
    """A numeric column, and zones that are written as floats: 1.0, 2.5, 10.0 or missing."""
    rng = np.random.default_rng(8)
    zone, size = rng.choice([1.0, 2.5, 10.0, np.nan], 260, p=[0.4, 0.3, 0.2, 0.1]), rng.normal(size=260)
    visits = rng.poisson(np.exp(0.3 + size + 1.5 * (zone == 2.5)))
    return pl.DataFrame({"size": size, "zone": zone, "visits": visits}).with_columns(pl.col("zone").fill_nan(None))


def test_a_category_of_floats_from_parquet_and_csv(ddpn, files, zones):
    zones.write_parquet("zones.parquet")
    zones.write_csv("zones.csv")
    zones.with_columns(pl.col("zone").cast(pl.Float32)).write_csv("short.csv")
    options = ("--config", "quick.toml", "--category", "zone", "--compare-with", "constant", "-o", "model")
    fitted = ddpn("fit", "zones.parquet", *options)
    assert fitted.exit_code == 0, fitted.output
    found = {}
    for name in ("zones.parquet", "zones.csv", "short.csv"):
        done = ddpn("predict", "model", name, "-o", f"{name}.out.csv")
        assert done.exit_code == 0, done.output
        found[name] = pl.read_csv(f"{name}.out.csv").to_numpy()
    assert np.isfinite(found["zones.csv"]).all()
    for name in ("zones.csv", "short.csv"):
        np.testing.assert_allclose(found[name], found["zones.parquet"], rtol=1e-9, atol=1e-9)
    # The zone matters, so the comparison would show levels that are not recognised.
    zones.with_columns(zone=pl.lit(99.0)).write_csv("other.csv")
    assert ddpn("predict", "model", "other.csv", "-o", "other.out.csv").exit_code == 0
    assert np.abs(pl.read_csv("other.out.csv").to_numpy() - found["zones.csv"]).max() > 1e-3
