"""Visits to a doctor in the RAND health insurance experiment: real counts that need no download."""

from ddpn.datasets.dataset import Dataset, as_counts
from ddpn.datasets.splits import SEED, split
from ddpn.extras import import_extra


def rand_health(*, seed: int = SEED) -> Dataset:
    """Outpatient visits to a doctor per year (0 to 77, mean 2.86), from insurance plan and health; 20,190 rows.

    The data is part of statsmodels, which the extra `data` installs.

    >>> data = rand_health()
    >>> data.X.shape, round(float(data.y.mean()), 2)
    ((20190, 9), 2.86)
    """
    polars, randhie = import_extra("polars", "data"), import_extra("statsmodels.datasets.randhie", "data")
    frame = randhie.load_pandas().data
    table = polars.DataFrame({str(name): frame[name].to_numpy(dtype=float) for name in frame.columns})
    y = as_counts(table["mdvis"], "mdvis")
    return Dataset(
        name="rand_health",
        X=table.drop("mdvis"),
        y=y,
        split=split(len(y), seed),
        license="public domain",
        citation="Cameron, A. C. and Trivedi, P. K. (2005). Microeconometrics: Methods and Applications. Cambridge.",
        note="rows are person-years: the years of one person may fall into different parts of the split",
    )
