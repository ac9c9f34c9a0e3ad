"""Jobs in this process, one after the other."""

from collections.abc import Iterator, Sequence
from functools import partial

from ddpn.executors.job import Executor, Failure, Job, Report, Result, Shared, attempt


class InProcess(Executor):
    """Runs jobs in this process, one after the other.

    Parameters
    ----------
    retries, store
        As for `Executor`.

    Examples
    --------
    >>> def greet(progress, name):
    ...     return {"greeting.txt": f"Hello {name}".encode()}
    >>> [result] = InProcess().run([Job("a greeting", greet, ("you",))])
    >>> result.get()
    {'greeting.txt': b'Hello you'}
    """

    @property
    def slots(self) -> int:
        return 1

    def _run(self, jobs: Sequence[Job], report: Report) -> Iterator[Result]:
        for job in jobs:
            arguments = [each.value if isinstance(each, Shared) else each for each in job.arguments]
            report(job, "running", "")
            for number in range(1, self.retries + 2):
                found = attempt(job.work, partial(report, job, "running"), arguments)
                if not isinstance(found, Failure):
                    yield Result(job, found)
                    break
                if found.final is not None or number > self.retries:
                    yield self.failed(job, found, number)
                    break
                report(job, "retried", found.message)
