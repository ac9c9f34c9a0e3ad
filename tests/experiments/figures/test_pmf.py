import numpy as np
import pytest
import torch
from scipy import stats

from ddpn.distributions import NegativeBinomial, Poisson
from ddpn.experiments.figures.canvas import panels
from ddpn.experiments.figures.pmf import at_quantiles, draw_pmf

pytest.importorskip("matplotlib")


def test_rows_are_the_first_with_their_counts():
    counts = torch.tensor([7.0, 2.0, 9.0, 2.0, 1.0, 1.0, 2.0, 3.0, 9.0, 3.0, 1.0])
    # Sorted: 1 1 1 2 2 2 3 3 7 9 9, of which the 0.1, 0.5 and 0.95 quantiles are the places 1, 5 and 9.5 of 0 to 10.
    assert at_quantiles(counts) == [4, 1, 2]


def poissons(y):
    return stats.poisson.pmf(y, [2.0, 5.0])


def negative_binomials(y):
    """Mean m and variance m + a m^2 is n = 1 / a, p = n / (n + m)."""
    return stats.nbinom.pmf(y, [2.0, 4.0], [2.0 / 6.0, 4.0 / 8.0])


@pytest.mark.parametrize(
    ("members", "each"),
    [
        (Poisson(torch.tensor([2.0, 5.0])), poissons),
        (NegativeBinomial(torch.tensor([4.0, 4.0]), torch.tensor([0.5, 0.25])), negative_binomials),
    ],
    ids=["poisson", "negative binomial"],
)
def test_members_ensemble_and_what_was_observed(members, each):
    ax = panels(1, 1, (3.0, 2.0))[1][0, 0]
    draw_pmf(ax, members, 60.0)
    y = np.array([bar.get_x() + bar.get_width() / 2 for bar in ax.patches]).round()
    expected = each(y[:, None])
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], expected.mean(1), atol=1e-6)
    for member, line in enumerate(ax.get_lines()[:2]):
        np.testing.assert_allclose(line.get_ydata(), expected[:, member], atol=1e-6)
    assert expected.mean(1).sum() > 0.998
    # What was observed is shown, however unlikely it was.
    assert ax.get_xlim()[1] >= 60.0
