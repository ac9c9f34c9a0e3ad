"""Numerics of count distributions: plain loops over counts, compiled by numba on first use.

Terms of all modules:

- A *family*, such as the Poisson, has a *weight* for each count: its probability, or its probability up to a factor
  that is the same for all counts. `p` is a distribution of a family with given parameters, and Z is a count drawn from
  it.
- h(y) = e^-y y^y / y! and D(y; mu) = mu - y + y log(y / mu), half of the Poisson deviance. Poisson probabilities are
  h(y) exp(-D(y; mu)).
- A *walk* computes the weights of consecutive counts one after another, from a count below which they are negligible
  to one above which they are (`walk`).
- A *panel* is a run of n = 16 * 2^k consecutive counts over which weights are so smooth that 16 of them determine the
  sum (`gauss`). Panels serve distributions with too many counts for a walk.
- A *row* is one mixture, with several components. The *extent* of a component is the range of counts with weights that
  are not negligible (`ranges.find_extent`).
"""
