"""Diagnosis of a count target given its features: dispersion, zeros, the largest count, heaping and the upper tail."""

from ddpn.analysis.diagnosis.checks import Dispersion, Finding
from ddpn.analysis.diagnosis.procedure import Diagnosis, diagnose, diagnose_sample

__all__ = ["Diagnosis", "Dispersion", "Finding", "diagnose", "diagnose_sample"]
