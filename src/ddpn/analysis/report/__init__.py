"""One HTML file that says what a fitted model is worth, what a target is like, or what a search found."""

from ddpn.analysis.report.diagnosis import write_diagnosis
from ddpn.analysis.report.tuning import write_tuning
from ddpn.analysis.report.writing import write_report

__all__ = ["write_diagnosis", "write_report", "write_tuning"]
