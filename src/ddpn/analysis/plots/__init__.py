"""All figures except that of `Prediction.plot`: figures of reports, of `plot` methods, and of calibration.

A function `draw_...` draws into axes. `plot_pit` takes predictions and observed counts.
"""

from ddpn.analysis.plots.predictions import plot_pit

__all__ = ["plot_pit"]
