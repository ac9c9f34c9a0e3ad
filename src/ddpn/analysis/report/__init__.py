"""One HTML file that says what a fitted model is worth, or what a target is like."""

from ddpn.analysis.report.diagnosis import write_diagnosis
from ddpn.analysis.report.writing import write_report

__all__ = ["write_diagnosis", "write_report"]
