"""Compare new rows with the training rows of a model."""

from ddpn.analysis.monitoring.comparison import compare
from ddpn.analysis.monitoring.result import Check, Monitoring

__all__ = ["Check", "Monitoring", "compare"]
