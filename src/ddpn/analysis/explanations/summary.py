"""`explain`: importance, effects and interactions of one model at once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ddpn.analysis.explanations.column_effects import Effects, measured_effects
from ddpn.analysis.explanations.inputs import Inputs
from ddpn.analysis.explanations.pairs import Interaction, measured_interactions
from ddpn.analysis.explanations.permutation import Importances, Observed, measured_importance
from ddpn.analysis.explanations.results import ExplanationResult
from ddpn.runtime.display import html_table


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(ExplanationResult):
    """What drives the predictions of a model.

    Attributes
    ----------
    effects : Effects
        The effect of every column on the mean and on the spread.
    interactions : list of Interaction
        Pairs of columns that interact, the strongest first; empty where none is found.
    importance : Importances or None
        What shuffling each column changes; None without counts.
    """

    effects: Effects
    interactions: list[Interaction]
    importance: Importances | None = None

    def table(self) -> dict[str, list[Any]]:
        """That of the effects."""
        return self.effects.table()

    def to_dict(self) -> dict[str, Any]:
        """Everything as tables by columns, ready for JSON."""
        found: dict[str, Any] = {"rows": self.effects.rows, "effects": self.effects.table()}
        if self.importance is not None:
            found["importance"] = self.importance.table()
        about = ("names", "strength", "noise")
        found["interactions"] = [
            {name: getattr(one, name) for name in about} | {"table": one.table()} for one in self.interactions
        ]
        return found

    def _repr_html_(self) -> str:
        parts = [] if self.importance is None else [f"<p>Importance</p>{self.importance._repr_html_()}"]
        parts.append(f"<p>Effects</p>{self.effects._repr_html_()}")
        pairs = [(" and ".join(one.names), one.strength, one.noise) for one in self.interactions]
        found = html_table(("interaction", "strength", "noise"), pairs) if pairs else "<p>No interactions.</p>"
        return "".join([*parts, found])

    def plot(self) -> Any:
        """Draw the strongest effects; needs `ddpn[plot]`.

        Returns
        -------
        matplotlib Figure
        """
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
    """Measure what drives the predictions of a model, with the defaults of `effects`, `interactions`, `importance`.

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
    >>> found.importance.by("crps")[0].name, found.effects.by("mean")[0].name, found.interactions
    ('x0', 'x0', [])
    """
    inputs = Inputs(model, X, exposure, upper)
    known = None if y is None else Observed.of(inputs, X, y, sample_weight, exposure, upper, censored)
    return explained(inputs, known, seed, progress)


def explained(
    inputs: Inputs, known: Observed | None, seed: int = 0, progress: Callable[[str], object] | None = None
) -> Explanation:
    """The same for validated inputs."""
    importance = None if known is None else measured_importance(inputs, known, seed=seed, progress=progress)
    effects = measured_effects(inputs, inputs.positions(None), seed=seed, progress=progress)
    pairs = measured_interactions(inputs, seed=seed, progress=progress)
    return Explanation(effects, [pair for pair in pairs if pair.is_found], importance)
