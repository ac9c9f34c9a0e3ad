"""From findings to a likelihood and options of `ddpn fit`."""

from collections.abc import Mapping

from ddpn.analysis.diagnosis.families import Family
from ddpn.analysis.diagnosis.recorded import Limits
from ddpn.analysis.diagnosis.result import Finding, Recommendation
from ddpn.analysis.diagnosis.zeros import ZeroInflation
from ddpn.networks.heads import HEADS

WORDS = {
    "poisson": "Poisson",
    "double_poisson": "Double Poisson",
    "negative_binomial": "Negative Binomial",
}


def recommend(
    findings: Mapping[str, Finding],
    direction: str,
    families: Mapping[str, Family],
    inflation: ZeroInflation | None,
    ceiling: str,
    bounds: tuple[int, int],
    limits: Limits | None = None,
) -> Recommendation:
    """The likelihood for these findings; `bounds` are the smallest and largest count, `limits` are known."""
    found = {name: finding for name, finding in findings.items() if finding.found}
    likelihood, reason = _base(direction, families)
    options: list[str] = [] if limits is None else list(limits.options)
    if "ceiling" in found and ceiling == "ceiling":
        likelihood, more = _bounded(likelihood, bounds, options)
        reason = more
    elif "zeros" in found:
        likelihood, reason = _zeros(likelihood, found["zeros"], inflation)
    elif "tail" in found and direction == "over":
        likelihood, reason = "mixed", "The tail is heavier than that of one distribution: a mixture per row follows it."
    reasons = [reason, *_extras(found, ceiling, bounds, options)]
    return Recommendation(likelihood, " ".join(reasons), tuple(options))


def _base(direction: str, families: Mapping[str, Family]) -> tuple[str, str]:
    if "double_binomial" in families:
        words = {"over": "above", "under": "below", "equi": "near"}[direction]
        return "double_binomial", (
            f"The Double Binomial puts no probability beyond the upper bound and follows a variance {words} that of a "
            "Binomial."
        )
    if direction == "under":
        return "double_poisson", "The Double Poisson can have a variance below the mean; the Negative Binomial cannot."
    if direction == "equi":
        return (
            "poisson",
            "A Poisson suffices; mixed, the default of ddpn fit, contains it (nearly) and is a safe choice.",
        )
    double, negative = families["double_poisson"], families["negative_binomial"]
    best, other = (double, negative) if double.loglik > negative.loglik else (negative, double)
    gain = best.loglik - other.loglik
    return best.name, (
        f"With one dispersion for all rows the {WORDS[best.name]} fits the over-dispersed counts better than the "
        f"{WORDS[other.name]} (by {gain:.2g} in log-likelihood per row)."
    )


def _first(*names: str) -> str:
    """The first of these likelihoods that the package has."""
    return next(name for name in names if name in HEADS)


def _zeros(base: str, finding: Finding, inflation: ZeroInflation | None) -> tuple[str, str]:
    if inflation is None:
        names = (f"hurdle_{base}", "hurdle_double_poisson", "hurdle_negative_binomial", "hurdle_poisson", "mixed")
        return _first(
            *names
        ), "Zeros are rarer than a smooth distribution has them, so they need a probability of their own."
    zero_inflated = (
        f"zero_inflated_{inflation.base}",
        "zero_inflated_double_poisson",
        "zero_inflated_poisson",
        "mixed",
    )
    chosen = _first(*zero_inflated)
    via = (
        "a mixture per row with room for the zeros" if chosen == "mixed" else f"a zero-inflated {WORDS[inflation.base]}"
    )
    return chosen, f"About {inflation.share:.0%} of the rows are extra zeros: {via} fits them."


def _bounded(base: str, bounds: tuple[int, int], options: list[str]) -> tuple[str, str]:
    why = f"The counts have an upper limit of {bounds[1]:,}"
    if "double_binomial" in HEADS:
        options.append(f"--upper {bounds[1]}")
        return "double_binomial", f"{why}: a distribution on a limited range puts no probability beyond it."
    return base, f"{why}, which no likelihood here knows: predicted probabilities beyond it are to be ignored."


def _extras(found: Mapping[str, Finding], ceiling: str, bounds: tuple[int, int], options: list[str]) -> list[str]:
    """Sentences about limits and rounding, whose options are added."""
    knows_bounds, sentences = "double_binomial" in HEADS, []
    if "tail" in found:
        sentences.append(
            "Extreme counts also occur where the dispersion differs between rows, which ddpn fit predicts."
        )
    if "ceiling" in found and ceiling != "ceiling":
        if knows_bounds:
            options.append(f"--censored-above {bounds[1]}")
        sentences.append(f"If {bounds[1]:,} means '{bounds[1]:,} or more', treat these counts as censored.")
    if "floor" in found:
        if knows_bounds:
            options.append(f"--lower {bounds[0]}")
        sentences.append(f"Counts below {bounds[0]:,} do not occur.")
    if "heaping" in found:
        sentences.append("No likelihood here models rounding: read single probabilities with care, intervals less so.")
    return sentences
