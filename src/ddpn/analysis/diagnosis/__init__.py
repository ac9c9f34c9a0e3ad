"""Diagnosis of a count target: dispersion, zeros, the largest count, heaping and tail, given the features."""

from ddpn.analysis.diagnosis.checks import Dispersion, Finding
from ddpn.analysis.diagnosis.procedure import Diagnosis, diagnose, diagnose_sample

__all__ = ["Diagnosis", "Dispersion", "Finding", "diagnose", "diagnose_sample"]
