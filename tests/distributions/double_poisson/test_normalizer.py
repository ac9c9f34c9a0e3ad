"""Where one way of computing log c hands over to another, nothing jumps; and the pieces the ways are made of."""

import mpmath
import numpy as np
import pytest
import torch

from ddpn.distributions.double_poisson import normalizer, series, weights


def f64(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def both_sides(f, low: float, high: float) -> torch.Tensor:
    """The neighbouring doubles between which the predicate `f` changes."""
    assert f(f64([low])) != f(f64([high]))
    while np.nextafter(low, high) < high:
        middle = 0.5 * (low + high)
        if f(f64([middle])) == f(f64([low])):
            low = middle
        else:
            high = middle
    return f64([low, high])


def in_table(mu: torch.Tensor, gamma: float) -> bool:
    end = weights.upper_end(mu, torch.full_like(mu, gamma), normalizer.DEPTH)
    return bool(end < normalizer.TABLES[-1] - normalizer.MARGIN)


class TestBorders:
    def assert_no_jump(self, mu: torch.Tensor, gamma: float) -> None:
        g = torch.full_like(mu, gamma)
        log_c, mean, deviance = normalizer.first_moments(mu, g)
        variance = normalizer.moments(mu, g).variance
        assert log_c.diff().abs().item() <= 3e-9
        assert (mean.diff().abs() / mean[0]).item() <= 3e-9
        assert (variance.diff().abs() / variance[0]).item() <= 2e-8
        assert (deviance.diff().abs() / deviance[0]).item() <= 2e-8

    @pytest.mark.parametrize("gamma", [2e-4, 0.01, 0.3, 0.9, 1.1, 2.0, 5.0])
    def test_series(self, gamma):
        mu = both_sides(lambda mu: bool(series.applies(mu, f64([gamma]))), 1e-3, 1e7)
        self.assert_no_jump(mu, gamma)

    @pytest.mark.parametrize("gamma", [6.0, 20.0, 300.0, 5e3])
    def test_series_from_local(self, gamma):
        """Narrow laws: the border is mu = 1.3 gamma."""
        mu = both_sides(lambda mu: bool(series.applies(mu, f64([gamma]))), 1e-3, 1e7)
        assert mu[0].item() == pytest.approx(1.3 * gamma)
        self.assert_no_jump(mu, gamma)

    @pytest.mark.parametrize("gamma", [0.16, 0.3, 0.6, 1.0, 3.0, 30.0, 1e3, 1e4])
    def test_table(self, gamma):
        mu = both_sides(lambda mu: in_table(mu, gamma), 1e-6, 80.0)
        self.assert_no_jump(mu, gamma)

    @pytest.mark.parametrize("gamma", [0.08, 0.15, 0.3, 0.6])
    def test_largest_table(self, gamma):
        """Beyond it, distributions that are not narrow are summed by quadrature."""
        largest = normalizer._LARGEST - normalizer.MARGIN

        def reaches(mu):
            return bool(weights.upper_end(mu, f64([gamma]), normalizer.DEPTH, steps=1) > largest)

        mu = both_sides(reaches, 1e-6, 80.0)
        assert (gamma * mu < series.MIN_K).all()
        self.assert_no_jump(mu, gamma)

    @pytest.mark.parametrize("size", [16, 32, 64])
    def test_sizes_of_tables(self, size, assert_within):
        """Many rows are sorted by size, few are not: both give the same."""
        mu, gamma = f64(np.linspace(size - 9.0, size, 4500)), f64(np.linspace(10.0, 3e3, 4500))
        many = normalizer.first_moments(mu, gamma)
        few = [
            torch.cat(part)
            for part in zip(
                *(normalizer.first_moments(m, g) for m, g in zip(mu.split(100), gamma.split(100), strict=True)),
                strict=True,
            )
        ]
        for a, b in zip(many, few, strict=True):
            assert_within(a, b, 1e-9, floor=1e-3)


class TestTableSizes:
    """Each row is in one table, or left for other ways of summing."""

    @pytest.mark.parametrize("rows", [1, 64, 65, 3000])
    @pytest.mark.parametrize("furthest", [0.5, 20.0, 61.0, 90.0, 125.0, 125.1, torch.inf, torch.nan])
    def test_every_row_has_a_place(self, rows, furthest):
        reach = torch.linspace(0.1, min(furthest, 125.0) if furthest > 0.0 else 30.0, rows, dtype=torch.float64)
        reach[-1] = furthest
        sizes, others = normalizer._table_sizes(reach)
        assert sizes == sorted(set(sizes))
        assert others == (not furthest <= 125.0)
        assert others or furthest <= sizes[-1] - normalizer.MARGIN + 1e-9

    def test_a_table_of_its_own_for_rows_it_saves_time_for(self):
        reach = torch.cat([torch.full((3000,), 10.0), torch.full((100,), 50.0)]).double()
        assert normalizer._table_sizes(reach) == ([16, 56], False)
        assert normalizer._table_sizes(reach[-200:]) == ([56], False)
        assert normalizer._table_sizes(torch.full((100,), torch.inf)) == ([], True)

    def test_no_rows(self):
        assert [len(x) for x in normalizer.first_moments(f64([]), f64([]))] == [0, 0, 0]

    @pytest.mark.parametrize("rows", [2, 30, 500])
    def test_rows_do_not_depend_on_their_neighbours(self, rows, assert_within):
        generator = torch.Generator().manual_seed(rows)
        mu, gamma = torch.randn(2, rows, dtype=torch.float64, generator=generator).mul(2.0).add(1.0).exp()
        alone = [normalizer.first_moments(m, g) for m, g in zip(mu.split(1), gamma.split(1), strict=True)]
        for found, each in zip(normalizer.first_moments(mu, gamma), zip(*alone, strict=True), strict=True):
            assert_within(found, torch.cat(each), 1e-9, floor=1e-2)

    def test_no_count_close_to_mu(self):
        """gamma D is 1,900 at the nearest count: weights that are not scaled would all be 0."""
        mu, gamma = f64([0.5, 0.5, 3.0]), f64([1e4, 1.0, 2.0])
        log_c, mean, _ = normalizer.first_moments(mu, gamma)
        expected = 0.5 * np.log(1e4) - 1.0 - 1e4 * (0.5 - 1.0 + np.log(2.0))
        assert log_c[0].item() == pytest.approx(expected, rel=1e-12)
        assert mean[0].item() == pytest.approx(1.0)
        torch.testing.assert_close(log_c[1:], normalizer.first_moments(mu[1:], gamma[1:])[0])


def test_moments_against_sums(random_laws, assert_within):
    """All seven that derivatives of first and second order are made of."""
    mu, gamma = f64([o.mu for o in random_laws]), f64([o.gamma for o in random_laws])
    found = normalizer.moments(mu, gamma)

    def expected(law, deviance) -> list[float]:
        """E[D], and moments of z = y - E[Y] and d = D - E[D]: of z^2, d^2, z d, z^3 and z^2 d."""
        mean = law.expectation(deviance)
        z, d = law.y - law.mean, deviance - mean
        square = z * z
        return [mean, *(law.expectation(x) for x in (square, d * d, z * d, square * z, square * d))]

    deviance, *squares, z_d, z_z_z, z_z_d = np.array([expected(o.law, o.deviance) for o in random_laws]).T
    at = {"mu": mu, "gamma": gamma}
    sd, dev_sd = np.sqrt(squares)
    assert_within(found.mean, [o.law.mean for o in random_laws], 1e-8, **at)
    assert_within(found.variance, [o.law.variance for o in random_laws], 1e-8, **at)
    assert_within(found.deviance, deviance, 1e-7, **at)
    # Mixed and odd moments may vanish: relative to the standard deviations they are made of.
    wide = sd > 1e-6
    for name, moment, scale in [
        ("covariance", z_d, sd * dev_sd),
        ("deviance_variance", squares[1], dev_sd**2),
        ("third", z_z_z, sd**3),
        ("square_deviance", z_z_d, sd**2 * dev_sd),
    ]:
        error = np.abs(getattr(found, name).numpy() - moment) / np.maximum(scale, 1e-300)
        assert error[wide].max() <= 1e-6, name


class TestWeights:
    @pytest.mark.parametrize("mu", [1e-6, 0.3, 20.0, 1e4, 1e7])
    def test_deviance(self, mu):
        """Next to the mean as far from it: mu - y + y log(y / mu) to 40 digits."""
        y = np.unique(np.floor([0, 1, 2, mu * 0.9, mu - mu**0.5, mu, mu + 1, mu + mu**0.5, 3 * mu, 1e7]).clip(0))
        with mpmath.workdps(40):
            m = mpmath.mpf(mu)
            exact = [float(m - v + (v * mpmath.log(v / m) if v else 0)) for v in map(mpmath.mpf, y.tolist())]
        got = weights.deviance(f64(y), f64(mu)).numpy()
        # D may be far below y: what counts is gamma D, where gamma |y - mu| sets the scale of rounding.
        assert (np.abs(got - exact) <= 1e-14 * np.abs(exact) + 1e-15 * np.abs(y - mu) + 1e-15 * mu * (y < mu / 2)).all()

    def test_log_h(self):
        y = np.concatenate([np.arange(0.0, 40.0), [100.0, 1e4, 1e7]])
        with mpmath.workdps(40):
            exact = [float(v * mpmath.log(max(v, 1)) - v - mpmath.loggamma(v + 1)) for v in map(mpmath.mpf, y.tolist())]
        torch.testing.assert_close(weights.log_h_of_count(f64(y)), f64(exact), rtol=0, atol=2e-13)
        far = y >= 12
        torch.testing.assert_close(weights.log_h(f64(y[far])), f64(exact)[far], rtol=0, atol=3e-11)

    def test_ends_bound_the_window(self):
        """gamma D at the ends is at least the depth: from outside, and not by much."""
        mu, gamma = (
            x.flatten()
            for x in torch.meshgrid(
                torch.logspace(-6, 7, 27).double(), torch.logspace(-4, 4, 17).double(), indexing="ij"
            )
        )
        high, low = weights.upper_end(mu, gamma, 32.0), weights.lower_end(mu, gamma, 32.0)
        assert (high > mu).all()
        depth = gamma * weights.deviance(high, mu)
        # At gamma mu = 1e11 the depth itself is rounded at 1e-4.
        assert ((depth >= 32.0 - 1e-3) & (depth <= 34.0)).all()
        assert (low < mu).all()
        # D(0) = mu: only where gamma mu is below the depth does the window reach 0.
        assert torch.equal(low == 0, gamma * mu <= 32.0)
        depth = gamma * weights.deviance(low, mu)
        assert ((depth >= 32.0 - 1e-3) & (depth <= 34.0))[low > 0].all()
