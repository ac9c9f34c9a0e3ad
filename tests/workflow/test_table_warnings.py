"""Test that a target which is written with more than digits is not read silently."""

import numpy as np
import polars as pl
import pytest

from ddpn.workflow.config import FitConfig
from ddpn.workflow.preparing import prepare

RNG = np.random.default_rng(0)
COUNTS, X = RNG.poisson(3.0, 200), RNG.normal(size=200)


def list_warnings(cells, **options) -> list[str]:
    return list(prepare(pl.DataFrame({"articles": cells, "x": X}), FitConfig(target="articles", **options)).warnings)


def test_an_open_ended_count_suggests_the_option_for_it():
    cells = [str(count) if count < 5 else "5+" for count in COUNTS]
    (sentence,) = list_warnings(cells)
    assert f"{(COUNTS >= 5).sum()} counts such as '5+' are read as 5" in sentence
    assert sentence.endswith("Use `censored_above=5`.")
    assert list_warnings(cells, censored_above=5) == []


def test_several_open_ended_counts_need_a_column():
    cells = [f"{count}+" if count > 4 else str(count) for count in COUNTS]
    (sentence,) = list_warnings(cells)
    assert "`censored`, with a column" in sentence


def test_a_unit_of_the_target_is_reported():
    (sentence,) = list_warnings([f"{count} articles" for count in COUNTS])
    assert "values with 'articles' are read as numbers without it" in sentence


@pytest.mark.parametrize("cells", [COUNTS, [str(count) for count in COUNTS]])
def test_plain_counts_are_not_reported(cells):
    assert list_warnings(cells) == []
