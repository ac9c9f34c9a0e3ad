"""Compare new rows with the training rows of a model: `ddpn monitor`."""

from ddpn.analysis.monitoring.comparison import monitor
from ddpn.analysis.monitoring.result import Check, Monitoring

__all__ = ["Check", "Monitoring", "monitor"]
