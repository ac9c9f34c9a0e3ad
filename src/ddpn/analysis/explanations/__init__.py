"""Explanations of a fitted model: what moves the predicted mean, what moves the spread, and what moves single rows.

`effects` are accumulated local effects of every column, `importance` says what shuffling a column changes,
`contributions` explain single rows, and `explain` does the first two at once, with their defaults. The others take
`Inputs`, a model with rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ddpn.analysis.explanations.column_effects import Curve, Effect, Effects, effects
from ddpn.analysis.explanations.inputs import Inputs
from ddpn.analysis.explanations.permutation import Importance, Importances, importance
from ddpn.analysis.explanations.results import ExplanationResult
from ddpn.analysis.explanations.shapley import Contributions, contributions
from ddpn.sample import checked_sample

__all__ = [
    "Contributions",
    "Curve",
    "Effect",
    "Effects",
    "Explanation",
    "Importance",
    "Importances",
    "Inputs",
    "contributions",
    "effects",
    "explain",
    "importance",
]


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(ExplanationResult):
    """What drives the predictions of a model.

    Attributes
    ----------
    effects : Effects
        The effect of every column on the mean and on the spread.
    importance : Importances or None
        What shuffling each column changes; None without counts.
    """

    effects: Effects
    importance: Importances | None = None

    def table(self) -> dict[str, list[Any]]:
        """That of the effects."""
        return self.effects.table()

    def to_dict(self) -> dict[str, Any]:
        """Everything as tables by columns, ready for JSON."""
        found: dict[str, Any] = {"rows": self.effects.rows, "effects": self.effects.table()}
        return found if self.importance is None else found | {"importance": self.importance.table()}

    def _repr_html_(self) -> str:
        found = {"Importance": self.importance, "Effects": self.effects}
        return "".join(f"<p>{name}</p>{each._repr_html_()}" for name, each in found.items() if each is not None)

    def plot(self) -> Any:
        """Draw the strongest effects."""
        return self.effects.plot()


def explain(
    model: Any,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    upper: Any = None,
    censored: Any = None,
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
) -> Explanation:
    """Measure what drives the predictions of a model, with the defaults of `effects` and `importance`.

    Parameters
    ----------
    model : estimator
        A fitted model.
    X, exposure, upper
        Rows as for predictions; the test set, or training rows.
    y, sample_weight, censored : array-like, optional
        Their counts, as for `score`. Without y, importances are not measured.
    seed : int
        Seed of the draws and shuffles.
    progress : callable, optional
        Called with the name of each step.

    Examples
    --------
    >>> import numpy as np
    >>> from ddpn import CountGLM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = rng.poisson(np.exp(1 + 0.5 * X[:, 0]))
    >>> found = explain(CountGLM(likelihood="poisson").fit(X, y), X, y)
    >>> found.importance.by("crps")[0].name, found.effects.by("mean")[0].name
    ('x0', 'x0')
    """
    inputs = Inputs(model, X, exposure, upper)
    if y is not None:
        sample = checked_sample(X, y, sample_weight, exposure, getattr(model, "fractional", "error"))
        inputs = Inputs.of_sample(model, inputs.predictor.counts.of(sample, upper, censored))
    return explanation_of(inputs, seed, progress)


def explanation_of(
    inputs: Inputs,
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
    measured: Inputs | None = None,
) -> Explanation:
    """The same for inputs: importance where their counts are known, and effects.

    `measured` are the inputs of importance, where a model that was fitted to the rows would make columns look too
    important.
    """
    measured = inputs if measured is None else measured
    found = None if measured.sample is None else importance(measured, seed=seed, progress=progress)
    return Explanation(effects(inputs, seed=seed, progress=progress), found)
