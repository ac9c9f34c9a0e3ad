"""Diagnosis of a count target given its features: dispersion, zeros, the largest count, heaping and the upper tail."""

from ddpn.analysis.diagnosis.dispersion import Dispersion
from ddpn.analysis.diagnosis.finding import Finding
from ddpn.analysis.diagnosis.procedure import diagnose, diagnose_sample
from ddpn.analysis.diagnosis.result import Diagnosis

__all__ = ["Diagnosis", "Dispersion", "Finding", "diagnose", "diagnose_sample"]
