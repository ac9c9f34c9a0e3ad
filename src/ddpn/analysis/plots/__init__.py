"""Figures of explanations, predictions and calibration, for reports and for the `plot` methods of results.

Functions whose names begin with `draw_` draw into given axes or return a figure. `plot_pit` plots a PIT histogram.
`Prediction.plot` is in `ddpn.prediction.figure`.
"""

from ddpn.analysis.plots.predictions import plot_pit

__all__ = ["plot_pit"]
