"""Write truncated_counts.csv: masses of ranges of counts and truncated distributions, with 40 digits.

Run in this folder: python truncated_counts.py > truncated_counts.csv. Poisson, Negative Binomial and Double Poisson are
summed count by count from ratios of neighbouring probabilities; the Negative Binomial's mean difference is Wei and
Held's (2014) closed form.
"""

import mpmath as mp

mp.mp.dps = 40
#: Family, mu, gamma or alpha, low, high (-1: none), a count to score.
CASES = [
    ("poisson", 1e-8, 1, 1, -1, 2),
    ("poisson", 0.5, 1, 0, 2, 1),
    ("poisson", 3.0, 1, 1, -1, 3),
    ("poisson", 3.0, 1, 500, -1, 501),
    ("poisson", 40.0, 1, 1, -1, 38),
    ("poisson", 900.0, 1, 1100, 1300, 1102),
    ("poisson", 900.0, 1, 0, 700, 690),
    ("poisson", 900.0, 1, 850, -1, 900),
    ("poisson", 20000.0, 1, 21000, -1, 21020),
    ("negative_binomial", 0.2, 3.0, 1, -1, 1),
    ("negative_binomial", 20.0, 0.5, 1, -1, 15),
    ("negative_binomial", 20.0, 0.5, 900, -1, 910),
    ("negative_binomial", 60.0, 4.0, 1, 2000, 10),
    ("negative_binomial", 300.0, 0.05, 250, 600, 251),
    ("double_poisson", 4.0, 0.3, 1, -1, 2),
    ("double_poisson", 4.0, 30.0, 5, -1, 5),
    ("double_poisson", 4.0, 30.0, 12, -1, 12),
    ("double_poisson", 500.0, 0.2, 1, 450, 449),
    ("double_poisson", 500.0, 0.2, 560, -1, 600),
    ("double_poisson", 500.0, 40.0, 495, 505, 500),
]
#: mu, alpha and y of Negative Binomials far from a Poisson.
OVERDISPERSED = [(60.0, 0.5, 3), (1e5, 3.0, 100), (19489728.93, 296.87, 3), (1e7, 1e4, 0), (1e9, 20.0, 10**6)]


def compute_log_ratio(family: str, mu: mp.mpf, other: mp.mpf, y: int) -> mp.mpf:
    """Return log p(y + 1) / p(y)."""
    if family == "poisson":
        return mp.log(mu / (y + 1))
    if family == "negative_binomial":
        return mp.log((y + 1 / other) / (y + 1)) - mp.log1p(1 / (other * mu))
    grows = (y * mp.log1p(mp.mpf(1) / y) if y else mp.mpf(0)) - 1
    return (1 - other) * grows - other * mp.log((y + 1) / mu)


def compute_pmf(family: str, mu: mp.mpf, other: mp.mpf, past: int) -> list[mp.mpf]:
    """Return probabilities of 0, 1, ... until they fall below 1e-45 of the largest from `past` on."""
    log_p, top = [mp.mpf(0)], -mp.inf
    while len(log_p) <= past + 8 or log_p[-1] > top - 104:
        log_p.append(log_p[-1] + compute_log_ratio(family, mu, other, len(log_p) - 1))
        top = max(top, log_p[-1]) if len(log_p) > past else top
    highest = max(log_p)
    weights = [mp.exp(x - highest) for x in log_p]
    total = mp.fsum(weights)
    return [w / total for w in weights]


def compute_log_mass(family: str, mu: mp.mpf, other: mp.mpf, low: int, high: int) -> mp.mpf:
    p = compute_pmf(family, mu, other, max(low, high if high > 0 else 0))
    outside = mp.fsum(p[:low]) + (mp.fsum(p[high + 1 :]) if high >= 0 else 0)
    return mp.log(mp.fsum(p[low : high + 1 if high >= 0 else None])) if outside > 0.5 else mp.log1p(-outside)


def compute_truncated_moments(case: tuple) -> list[mp.mpf]:
    family, mu, other, low, high, y = case
    mu, other = mp.mpf(mu), mp.mpf(other)
    p = compute_pmf(family, mu, other, max(low, high if high > 0 else 0))
    part = p[low : high + 1 if high >= 0 else None]
    total = mp.fsum(part)
    part = [x / total for x in part]
    mean = mp.fsum(x * (low + i) for i, x in enumerate(part))
    variance = mp.fsum(x * (low + i - mean) ** 2 for i, x in enumerate(part))
    entropy = -mp.fsum(x * mp.log(x) for x in part)
    below, crps, cdf = mp.mpf(0), mp.mpf(0), mp.mpf(0)
    for i, x in enumerate(part):
        below += x
        cdf = below if low + i == y else cdf
        crps += (1 - below) ** 2 if low + i >= y else below**2
    step = mp.mpf(10) ** -12
    by_log_mu, by_log_other = (
        (
            compute_log_mass(family, mu * a, other * b, low, high)
            - compute_log_mass(family, mu / a, other / b, low, high)
        )
        / (2 * step)
        for a, b in ((mp.exp(step), 1), (1, mp.exp(step)))
    )
    by_log_other = mp.mpf(0) if family == "poisson" else by_log_other
    return [compute_log_mass(family, mu, other, low, high), by_log_mu, by_log_other, mean, variance, entropy, cdf, crps]


def compute_overdispersed_crps(mu: float, alpha: float, y: int) -> mp.mpf:
    r, p = 1 / mp.mpf(alpha), 1 / (1 + mp.mpf(alpha) * mp.mpf(mu))
    spread = r * (1 - p) / p**2 * mp.hyp2f1(r + 1, mp.mpf(1) / 2, 2, -4 * (1 - p) / p**2)

    def cdf(size: mp.mpf, at: int) -> mp.mpf:
        return mp.betainc(size, at + 1, 0, p, regularized=True) if at >= 0 else mp.mpf(0)

    distance = y * (2 * cdf(r, y) - 1) - r * (1 - p) / p * (2 * cdf(r + 1, y - 1) - 1)
    return distance - spread


if __name__ == "__main__":
    columns = "log_mass", "by_log_mu", "by_log_other", "mean", "variance", "entropy", "cdf", "crps"
    print(",".join(("family", "mu", "other", "low", "high", "y", *columns)))
    for case in CASES:
        print(",".join([*map(str, case), *(mp.nstr(x, 17) for x in compute_truncated_moments(case))]))
    for mu, alpha, y in OVERDISPERSED:
        score = compute_overdispersed_crps(mu, alpha, y)
        print(",".join(["overdispersed", *map(str, (mu, alpha, 0, -1, y)), *["nan"] * 7, mp.nstr(score, 17)]))
