"""One HTML file that says what a fitted model is worth, or what a target is like."""

from ddpn.report.diagnosis import write_diagnosis
from ddpn.report.writing import write_report

__all__ = ["write_diagnosis", "write_report"]
