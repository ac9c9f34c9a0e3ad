"""Micro-batching: requests that arrive within a short window are predicted together, in a thread of their own."""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from ddpn.serving.middleware import Limits, Metrics
from ddpn.serving.model import ServedModel
from ddpn.serving.schemas import Row, Wanted, busy


@dataclass(eq=False)
class WaitingRequest:
    """A request that waits: its model, as it was when the rows were read, and where the answer goes."""

    model: ServedModel
    rows: Sequence[Row]
    wanted: Wanted
    answer: asyncio.Future[list[dict[str, Any]]]


class Batcher:
    """Collect requests and predict them together; a full queue refuses more of them with status 429."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits, self._metrics = limits, metrics
        self._queue: deque[WaitingRequest] = deque()
        metrics.waiting.set_function(lambda: len(self._queue))
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="predict")
        self._task: asyncio.Task[None] | None = None
        self._started: float | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether a batch has been predicted for much longer than requests wait: only a new process helps."""
        return self._started is not None and perf_counter() - self._started > 2.0 * self._limits.timeout

    def start(self) -> None:
        """Begin to predict; needs a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Finish what is queued, then end."""
        while self._queue and self._task is not None and not self._task.done():
            await asyncio.sleep(0.01)
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._thread.shutdown(wait=True)

    async def submit(self, model: ServedModel, rows: Sequence[Row], wanted: Wanted) -> list[dict[str, Any]]:
        """The answer to a request, once its batch is predicted."""
        if len(self._queue) >= self._limits.max_queue:
            raise busy(f"{self._limits.max_queue:,} requests are waiting already. Try again in a second.", 429)
        job = WaitingRequest(model, rows, wanted, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        self._wake.set()
        return await job.answer

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            if self._limits.batch_window and sum(len(job.rows) for job in self._queue) < self._limits.batch_rows:
                await asyncio.sleep(self._limits.batch_window)
            jobs = self._take()
            if not self._queue:
                self._wake.clear()
            if jobs:
                start = self._started = perf_counter()
                # Finished also where the server has to stop meanwhile: its requests were taken.
                await asyncio.shield(self._finished(jobs))
                self._started = None
                self._metrics.batch.observe(sum(len(job.rows) for job in jobs))
                self._metrics.batch_seconds.observe(perf_counter() - start)

    async def _finished(self, jobs: list[WaitingRequest]) -> None:
        requests, loop = [(job.rows, job.wanted) for job in jobs], asyncio.get_running_loop()
        found: list[Any]
        try:
            found = await loop.run_in_executor(self._thread, jobs[0].model.predict, requests)
        except Exception as error:
            found = [error] * len(jobs)
        for job, answer in zip(jobs, found, strict=True):
            if job.answer.done():
                continue  # its client gave up, or its time is over
            if isinstance(answer, Exception):
                job.answer.set_exception(answer)
            else:
                job.answer.set_result(answer)

    def _take(self) -> list[WaitingRequest]:
        """The next batch: requests of one version of one model, in the order of their arrival."""
        jobs: list[WaitingRequest] = []
        others: deque[WaitingRequest] = deque()
        rows = 0
        while self._queue:
            job = self._queue.popleft()
            if job.answer.done():
                continue
            is_other = bool(jobs) and job.model is not jobs[0].model
            if is_other or (jobs and rows + len(job.rows) > self._limits.batch_rows):
                others.append(job)
                continue
            jobs.append(job)
            rows += len(job.rows)
        self._queue = others
        return jobs
