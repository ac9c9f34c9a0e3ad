"""Numerics of count distributions: plain Python loops over counts, compiled by numba on first use.

Terms of all modules:

- A *family* is a class of distributions, such as the Poisson. An instance of it, usually called `p`, is one
  distribution with given parameters. Z is a count drawn from `p`.
- The *weight* of a count is its unnormalised probability: its probability, possibly times a factor that is the same for
  all counts. Mixture weights are always called mixture weights.
- h(y) = e^-y y^y / y! and D(y; mu) = mu - y + y log(y / mu), half of the Poisson deviance. Poisson probabilities are
  h(y) exp(-D(y; mu)).
- A *walk* computes the weights of consecutive counts one after another. It starts below the most probable counts and
  ends above them, where weights are negligible (`walk`).
- A *panel* is a run of n = 16 * 2^k consecutive counts over which weights are so smooth that 16 of them determine the
  sum (`gauss`). Panels serve distributions with too many counts for a walk.
- A *row* is one mixture, with several components.
- The *extent* of a component is the range of counts whose weights are not negligible (`extents.find_extent`).
"""
