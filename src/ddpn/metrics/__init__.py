"""Scores of a predictive law against what was seen: one value an example, never reduced."""

from ddpn.metrics.scores import crps, nll, register_crps

__all__ = ["crps", "nll", "register_crps"]
