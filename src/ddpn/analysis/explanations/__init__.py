"""Explanations of a fitted model: what moves the predicted mean, what moves the spread, and what moves single rows.

`effects` are accumulated local effects of every column, `importance` says what shuffling a column changes,
`contributions` explain single rows, and `explain` does the first two at once. Every fitted estimator has them as
methods; the functions take `Inputs`, a model with rows.
"""

from ddpn.analysis.explanations.column_effects import Curve, Effect, Effects, effects
from ddpn.analysis.explanations.inputs import Inputs
from ddpn.analysis.explanations.permutation import Importance, Importances, importance
from ddpn.analysis.explanations.shapley import Contributions, contributions
from ddpn.analysis.explanations.summary import Explanation, explain

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
