"""Explain a fitted model: which columns change the predicted mean, the spread, and the prediction of single rows.

`effects` computes accumulated local effects of columns, `importance` measures what shuffling a column changes, and
`contributions` explains the predictions of single rows. These three take `Inputs`, which hold a model and rows.
`explain` takes a model and computes effects and importance with default settings.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from numpy.typing import ArrayLike

from ddpn.analysis.explanations.column_effects import MAX_EFFECT_ROWS, effects
from ddpn.analysis.explanations.effect import Curve, Effect, Effects
from ddpn.analysis.explanations.inputs import Explainable, Inputs
from ddpn.analysis.explanations.permutation import Importance, Importances, importance
from ddpn.analysis.explanations.results import ExplanationResult, Table
from ddpn.analysis.explanations.shapley import Contributions, contributions
from ddpn.rows.count_rows import CountRows
from ddpn.storage.contents import JsonObject
from ddpn.tables.row_draw import describe_draw, draw_to_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    """Effects and importance of the columns of a model.

    Attributes
    ----------
    effects : Effects
        The effects of the columns on the mean and on the spread, by default of up to 40 columns (`effects`).
    importance : Importances or None
        The importance of the columns, by default of up to 40 columns (`importance`). None if the counts are unknown.
    """

    effects: Effects
    importance: Importances | None = None

    @property
    def library(self) -> str:  # type: ignore[override]
        """The library of the data frame that `to_frame` returns: "polars" or "pandas"."""
        return self.effects.library

    def table(self) -> Table:
        """Return the table of the effects (`Effects.table`)."""
        return self.effects.table()

    @property
    def drawn_rows_note(self) -> str:
        """Sentences that say how many rows were drawn; empty if all rows were used."""
        sentences = [describe_draw("Effects are measured on", self.effects.rows, self.effects.total)]
        if self.importance is not None and self.importance.results:
            one = self.importance
            scored = f"CRPS on {one.scored_rows:,} of these in each repeat" if one.scored_rows < one.rows else ""
            words = describe_draw("Importance is measured on", one.rows, one.total)
            sentences = [words.removesuffix(".") + f"; the {scored}." if words and scored else words, *sentences]
        return " ".join(filter(None, sentences))

    def to_dict(self) -> JsonObject:
        """Return the tables of effects and importance as a dictionary for JSON.

        The entry "draw" has the number of rows that were used for each, and the number from which they were drawn.
        """
        draw = {"effects": draw_to_json(self.effects.rows, self.effects.total)}
        tables: dict[str, object] = {"rows": self.effects.rows, "effects": self.effects.table(), "draw": draw}
        if self.importance is None:
            return tables
        draw["importance"] = draw_to_json(self.importance.rows, self.importance.total)
        draw["importance"]["scored_rows"] = self.importance.scored_rows
        return tables | {"importance": self.importance.table()}

    def _repr_html_(self) -> str:
        results = {"Importance": self.importance, "Effects": self.effects}
        tables = (f"<p>{name}</p>{result._repr_html_()}" for name, result in results.items() if result is not None)
        return "".join([*tables, f"<p>{self.drawn_rows_note}</p>" if self.drawn_rows_note else ""])

    def plot(self, figure: "Figure | None" = None) -> "Figure":
        """Draw the effects of the six columns with the strongest effects on the mean (`Effects.plot`).

        Parameters
        ----------
        figure : matplotlib Figure, optional
            The figure to draw into. Default: a new figure of pyplot, which `plt.show()` shows.
        """
        return self.effects.plot(figure=figure)


def explain(
    model: Explainable,
    X: ArrayLike,
    y: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    exposure: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    censored: ArrayLike | None = None,
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
    max_rows: int | Literal["auto"] | None = "auto",
) -> Explanation:
    """Explain a model by the effects and the importance of its columns, with default settings.

    Parameters
    ----------
    model : estimator
        A fitted model.
    X : array-like or data frame
        Rows with the columns of `fit`, from the test set or the training set.
    y : array-like, optional
        The counts. Without them, importance is not measured.
    sample_weight : array-like, optional
        The weight of each row, which importance uses. Default: equal weights.
    exposure, upper : array-like, optional
        The known scale and the largest possible count of each row. Required if predictions of the model need them.
    censored : array-like of bool, optional
        True for each count that stands for that many or more. Default: all counts are exact.
    seed : int
        Seed of random draws of rows and of shuffles.
    progress : callable, optional
        Called with the name of each step.
    max_rows : int, None or "auto"
        The largest number of rows to use. If there are more, some are drawn at random, always the same ones. None
        uses all rows, and "auto" uses the defaults of `effects` and `importance`. `drawn_rows_note` of the result
        says which rows were used.

    Returns
    -------
    Explanation
        The effects of the columns and, if y is given, their importance.

    Examples
    --------
    >>> import numpy as np
    >>> from ddpn import CountGLM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = rng.poisson(np.exp(1 + 0.5 * X[:, 0]))
    >>> explanation = explain(CountGLM(likelihood="poisson").fit(X, y), X, y)
    >>> explanation.importance.by("crps")[0].name, explanation.effects.by("mean")[0].name
    ('x0', 'x0')
    """
    inputs = Inputs(model, X, exposure, upper)
    if y is not None:
        fractional = getattr(model, "fractional", "error")
        rows = CountRows.from_arguments(X, y, sample_weight, exposure, upper, censored, fractional=fractional)
        inputs = Inputs.from_sample(model, inputs.predictor.counts.apply(rows))
    return explain_inputs(inputs, seed, progress, max_rows=max_rows)


def explain_inputs(
    inputs: Inputs,
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
    importance_inputs: Inputs | None = None,
    max_rows: int | Literal["auto"] | None = "auto",
) -> Explanation:
    """Explain the model of `inputs` by the effects of its columns and, if counts are known, by their importance.

    Effects are measured on the rows of `inputs`. Importance is measured on the rows of `importance_inputs`, by default
    those of `inputs`. If the model was fitted to the rows of `inputs`, pass held-out rows, because columns look too
    important on training rows.

    `seed` is the seed of random draws of rows and of shuffles. `progress` is called with the name of each step.
    `max_rows` is the largest number of rows to use; None uses all rows, and "auto" the defaults of `effects` and
    `importance`.
    """
    importance_inputs = inputs if importance_inputs is None else importance_inputs
    importances = None
    if importance_inputs.sample is not None:
        importances = importance(importance_inputs, max_rows=max_rows, seed=seed, progress=progress)
    effect_rows = MAX_EFFECT_ROWS if max_rows == "auto" else max_rows
    return Explanation(effects(inputs, max_rows=effect_rows, seed=seed, progress=progress), importances)
