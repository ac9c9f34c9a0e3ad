"""The narrowest and the most probable runs of counts of a distribution, for intervals."""

from ddpn.distributions.kernels.arrays import SUM_TOLERANCE, TIE_TOLERANCE


def sum_run(cdf, first, length):
    """Return the probability of `length` consecutive counts from the index `first` on, as a difference of two cdfs.

    `cdf` has P(Z <= z) for consecutive counts z. The index of a count is its position in this array.
    """
    return cdf[first + length - 1] - (cdf[first - 1] if first > 0 else 0.0)


def find_narrowest_run(cdf, n, level):
    """Find the fewest consecutive counts that together have a probability of at least `level`.

    If several runs of counts are equally short, the most probable one is chosen, and the first one if these are equally
    probable, too.

    Parameters
    ----------
    cdf : array, (n,) or longer
        P(Z <= z) for n consecutive counts z.
    n : int
        The number of these counts.
    level : float
        The probability.

    Returns
    -------
    first : int
        The index of the first count of the run.
    length : int
        The number of counts in the run; n if the probability of all n counts is below `level`.
    probability : float
        The probability of the run.
    """
    enough, end = level * (1.0 - SUM_TOLERANCE), 0
    best_first, best_length, best = 0, n + 1, 0.0
    for first in range(n):
        before = cdf[first - 1] if first > 0 else 0.0
        while end < n and cdf[end] - before < enough:
            end += 1
        if end == n:
            break
        length, mass = end - first + 1, cdf[end] - before
        if length < best_length or (length == best_length and mass > best * (1.0 + TIE_TOLERANCE)):
            best_first, best_length, best = first, length, mass
    if best_length > n:
        return 0, n, cdf[n - 1]
    return best_first, best_length, best


def find_most_probable_run(cdf, n, length):
    """Find the most probable run of `length` consecutive counts; return the index of its first count.

    If several runs are equally probable, it is the first of them. `cdf` has P(Z <= z) for n consecutive counts z.
    `length` is at most n.
    """
    best_first, best = 0, sum_run(cdf, 0, length)
    for first in range(1, n - length + 1):
        mass = sum_run(cdf, first, length)
        if mass > best * (1.0 + TIE_TOLERANCE):
            best_first, best = first, mass
    return best_first


def find_entry_levels(cdf, n, index):
    """Find the levels between which the narrowest interval first includes a count.

    This is for `CountDistribution.entry_levels`. The narrowest interval grows with its level. Bisection finds a length
    such that the most probable run of that many consecutive counts includes the count, and the most probable run that
    is one count shorter excludes it. If the distribution has several peaks, a growing interval may include, exclude and
    include a count again. Then the levels belong to one of these inclusions.

    Parameters
    ----------
    cdf : array, (n,) or longer
        P(Z <= z) for n consecutive counts z.
    n : int
        The number of these counts.
    index : int
        The index of the count.

    Returns
    -------
    outside, inside : float
        The probabilities of the shorter and of the longer run. For a count that is not among the n counts, both are the
        probability of all n counts.
    """
    if index < 0 or index >= n:
        return cdf[n - 1], cdf[n - 1]
    without, length = 0, n
    while length - without > 1:
        middle = (without + length) // 2
        first = find_most_probable_run(cdf, n, middle)
        if first <= index < first + middle:
            length = middle
        else:
            without = middle
    before = sum_run(cdf, find_most_probable_run(cdf, n, without), without) if without > 0 else 0.0
    return before, sum_run(cdf, find_most_probable_run(cdf, n, length), length)
