"""One HTML file that says what a fitted model is worth."""

from ddpn.analysis.report.page import write_report

__all__ = ["write_report"]
