"""Diagnosis of a count target: dispersion, zeros, the largest count, heaping and tail, given the features."""

from ddpn.analysis.diagnosis.procedure import diagnose, diagnose_sample
from ddpn.analysis.diagnosis.result import Diagnosis, Dispersion, Finding, Recommendation, TargetSummary

__all__ = ["Diagnosis", "Dispersion", "Finding", "Recommendation", "TargetSummary", "diagnose", "diagnose_sample"]
