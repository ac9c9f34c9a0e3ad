"""Figures for reports, for the `plot` methods of results, and of calibration (`plot_pit`).

Functions whose names begin with `draw_` draw into given axes or return a figure. `Prediction.plot` is in
`ddpn.prediction.figure`.
"""

from ddpn.analysis.plots.predictions import plot_pit

__all__ = ["plot_pit"]
