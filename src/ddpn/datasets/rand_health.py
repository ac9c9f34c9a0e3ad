"""Visits to a doctor in the RAND health insurance experiment: real counts that need no download."""

import numpy as np

from ddpn.datasets.dataset import Dataset, as_counts
from ddpn.datasets.split import SEED, split
from ddpn.datasets.table import Table
from ddpn.errors import ConfigError


def rand_health(*, seed: int = SEED) -> Dataset:
    """Outpatient visits to a doctor in a year (0 to 77, mean 2.86), from insurance plan and health; 20,190 rows.

    The data comes inside statsmodels, the extra `data`.

    >>> data = rand_health()
    >>> data.X.shape, round(float(data.y.mean()), 2)
    ((20190, 9), 2.86)
    """
    try:
        from statsmodels.datasets import randhie
    except ImportError:
        raise ConfigError(
            'statsmodels must be installed for the data set rand_health, got none. Run: pip install "ddpn[data]"'
        ) from None
    frame = randhie.load_pandas().data
    columns = {str(name): np.asarray(frame[name], dtype=np.float64) for name in frame.columns}
    y = as_counts(columns.pop("mdvis"), "mdvis")
    return Dataset(
        name="rand_health",
        X=Table(columns),
        y=y,
        split=split(len(y), seed),
        licence="public domain",
        citation="Cameron, A. C. and Trivedi, P. K. (2005). Microeconometrics: Methods and Applications. Cambridge.",
        note="rows are person-years: the years of one person may fall into different parts of the split",
    )
