"""Write count_families_exact.csv by 40-digit sums: python count_families.py > count_families_exact.csv.

It needs mpmath and takes about a minute. A row has mean, variance, and log pmf at three counts of a distribution;
`dispersion` is gamma, alpha or nu.
"""

from collections.abc import Iterator

from mpmath import exp, fsum, log, loggamma, mp, mpf

mp.dps = 40
DOUBLE_BINOMIAL = [
    (1, 0.3, 0.5), (5, 4.9, 3.0), (12, 2.0, 0.2), (12, 11.0, 4.0), (63, 20.0, 0.05), (64, 20.0, 5.0), (200, 3.0, 1.3),
    (300, 299.0, 0.01), (500, 250.0, 40.0), (2000, 900.0, 0.002), (3000, 40.0, 0.3), (1_000_000, 300_000.5, 1.7),
    (1_000_000, 12.5, 0.8), (1_000_000, 999_900.0, 0.6),
]  # fmt: skip
CONWAY_MAXWELL = [
    (0.001, 0.5), (0.02, 15.0), (0.7, 3.0), (1.0, 0.01), (3.0, 20.0), (4.5, 1.7), (8.0, 0.05), (16.3, 39.0),
    (30.0, 0.4), (61.0, 2.5), (150.0, 0.02), (400.0, 90.0), (2500.0, 1.3),
]  # fmt: skip
GENERALIZED_POISSON = [(0.01, 3.0), (0.8, 0.2), (4.0, 1e-6), (6.0, 12.0), (55.0, 0.4), (700.0, 2.5), (90_000.0, 0.05)]


def compute_x_log_x(x: mpf) -> mpf:
    """Return x log x, which is 0 at 0."""
    return x * log(x) if x else mpf(0)


def compute_double_binomial_terms(n: int, mu: float, gamma: float) -> tuple[range, list[mpf]]:
    """Return counts, and Efron's formula at them; with a large total 60 standard deviations on either side."""
    p, g = mpf(mu) / n, mpf(gamma)
    reach = int(60 * (mu * (1 - mu / n) / gamma + 1) ** 0.5) + 60
    k = range(max(0, int(mu) - reach), min(n, int(mu) + reach) + 1)
    chosen = [loggamma(n + 1) - loggamma(i + 1) - loggamma(n - i + 1) for i in k]
    saturated = [compute_x_log_x(mpf(i)) + compute_x_log_x(mpf(n - i)) - compute_x_log_x(mpf(n)) for i in k]
    others = [g * (i * log(p) + (n - i) * log(1 - p)) for i in k]
    return k, [c + (1 - g) * s + r for c, s, r in zip(chosen, saturated, others, strict=True)]


def compute_conway_maxwell_terms(mu: float, nu: float) -> tuple[range, list[mpf]]:
    """Return counts, and y log lambda - nu log y!, where Newton's method finds lambda by the mean."""
    v = mpf(nu)
    theta = v * log(mpf(mu) + 0.5 - 0.5 / v) if nu * mu > 2 else log(mpf(mu)) * min(nu, 1.0)
    y = range(int(mu + 60 * (mu / nu + mu) ** 0.5 + (90 * mu if nu * mu < 2 else 0)) + 90)
    fixed = [-v * loggamma(i + 1) for i in y]
    for _ in range(100):
        terms = [theta * i + f for i, f in zip(y, fixed, strict=True)]
        mean, variance, _ = compute_moments(y, terms)
        step = (log(mpf(mu)) - log(mean)) * mean / variance
        theta += max(min(step, mpf(1)), mpf(-1))
        if abs(step) < mpf(10) ** -35:
            return y, [theta * i + f for i, f in zip(y, fixed, strict=True)]
    raise ArithmeticError(f"no rate for mu = {mu}, nu = {nu}")


def compute_generalized_poisson_terms(mu: float, alpha: float) -> tuple[range, list[mpf]]:
    """Return counts, and Consul's formula at them."""
    theta, share = mpf(mu) / (1 + mpf(alpha)), mpf(alpha) / (1 + mpf(alpha))
    reach = int(20 * mu**0.5 * (1 + alpha) + 200 * (1 + alpha) ** 2) + 60
    y = range(max(0, int(mu) - reach), int(mu) + reach)
    return y, [log(theta) + (i - 1) * log(theta + share * i) - theta - share * i - loggamma(i + 1) for i in y]


def compute_moments(y: range, terms: list[mpf]) -> tuple[mpf, mpf, mpf]:
    """Return mean, variance and the log of the sum of exp(terms)."""
    peak = max(terms)
    w = [exp(t - peak) for t in terms]
    total = fsum(w)
    mean = fsum(i * x for i, x in zip(y, w, strict=True)) / total
    return mean, fsum((i - mean) ** 2 * x for i, x in zip(y, w, strict=True)) / total, peak + log(total)


def format_rows() -> Iterator[str]:
    """Format the lines of the table."""
    yield "family,total,mu,dispersion,mean,variance,y1,log_pmf1,y2,log_pmf2,y3,log_pmf3"
    cases = [("double_binomial", n, mu, g, compute_double_binomial_terms(n, mu, g)) for n, mu, g in DOUBLE_BINOMIAL]
    cases += [("conway_maxwell_poisson", 0, mu, nu, compute_conway_maxwell_terms(mu, nu)) for mu, nu in CONWAY_MAXWELL]
    cases += [
        ("generalized_poisson", 0, mu, a, compute_generalized_poisson_terms(mu, a)) for mu, a in GENERALIZED_POISSON
    ]
    for family, n, mu, dispersion, (y, terms) in cases:
        mean, variance, log_total = compute_moments(y, terms)
        spread = float(variance) ** 0.5
        at = [min(max(round(float(mean) + shift * spread), y[0]), y[-1]) for shift in (-2.0, 0.2, 4.0)]
        values = [f"{i},{float(terms[i - y[0]] - log_total)!r}" for i in at]
        yield ",".join([family, str(n), repr(mu), repr(dispersion), repr(float(mean)), repr(float(variance)), *values])


if __name__ == "__main__":
    for line in format_rows():
        print(line)
