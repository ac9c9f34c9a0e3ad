"""The report of a fitted model as one HTML file."""

from ddpn.analysis.report.page import write_report

__all__ = ["write_report"]
