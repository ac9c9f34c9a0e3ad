"""Compare new rows with the training rows of a model: `ddpn monitor`."""

from ddpn.monitoring.comparison import monitor
from ddpn.monitoring.result import Check, Monitoring

__all__ = ["Check", "Monitoring", "monitor"]
