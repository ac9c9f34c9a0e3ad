"""Where independent parts of the work run: in this process, in processes of this machine, or (`ddpn.cluster`) on Ray.

A job is a function with its arguments that returns files, so that results travel and are stored without pickles.
Importing this package imports no torch.
"""

from ddpn.executors.here import InProcess
from ddpn.executors.job import Executor, Job, JobError, Result, Shared
from ddpn.executors.processes import LocalProcesses
from ddpn.executors.store import ResultStore

__all__ = ["Executor", "InProcess", "Job", "JobError", "LocalProcesses", "Result", "ResultStore", "Shared"]
