"""One HTML file that says what a fitted model is worth."""

from ddpn.analysis.report.sections import write_report

__all__ = ["write_report"]
