"""Predict requests in batches: those that arrive during a prediction are predicted together, in a separate thread."""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import NamedTuple

from ddpn.prediction.spec import PredictionSpec
from ddpn.serving.middleware import Limits, Metrics
from ddpn.serving.model import ServedModel
from ddpn.serving.schemas import Row, retry_later
from ddpn.storage.contents import JsonObject

#: The most rows of a batch. A single request may have more.
_MAX_BATCH_ROWS = 256


class WaitingRequest(NamedTuple):
    """A request in the queue of a `Batcher`: rows to predict, outputs to return, and a future.

    `model` is the version of the model that was served when the request arrived. The result of the future, `answer`, is
    one dict per row.
    """

    model: ServedModel
    rows: Sequence[Row]
    spec: PredictionSpec
    answer: Future[list[JsonObject]]


class Batcher:
    """A queue of requests that predicts waiting requests together, in one call of the model.

    If the queue is full, further requests are refused with status 429.
    """

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits, self._metrics = limits, metrics
        self._queue: deque[WaitingRequest] = deque()
        metrics.waiting.set_function(lambda: len(self._queue))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="predict")
        self._started: float | None = None

    @property
    def is_stuck(self) -> bool:
        """True if the current batch takes more than twice the time limit of a request. Only a restart then helps."""
        started = self._started
        return started is not None and perf_counter() - started > 2.0 * self._limits.timeout

    async def stop(self) -> None:
        """Predict the requests in the queue, then end the thread."""
        await asyncio.to_thread(self._thread.shutdown)

    async def submit(self, model: ServedModel, rows: Sequence[Row], spec: PredictionSpec) -> list[JsonObject]:
        """Add a request to the queue, wait for its prediction, and return one dict per row.

        If the queue is full or the server is stopping, raise a `RequestError` that asks the client to try again. If the
        prediction fails, raise its error.
        """
        if len(self._queue) >= self._limits.max_queue:
            raise retry_later(f"The queue of {self._limits.max_queue:,} requests is full. Try again in a second.", 429)
        request = WaitingRequest(model, rows, spec, Future())
        self._queue.append(request)
        try:
            self._thread.submit(self._predict)  # an earlier batch may already include this request
        except RuntimeError:  # the server was stopped
            self._queue.remove(request)
            raise retry_later("The server is stopping. Try again in a second.") from None
        return await asyncio.wrap_future(request.answer)

    def _predict(self) -> None:
        """Predict the next batch, and set the results of its requests. This runs in the thread of the batcher."""
        batch = self._take_batch()
        if not batch:
            return
        start = self._started = perf_counter()
        answers: list[list[JsonObject] | Exception]
        try:
            answers = batch[0].model.predict([(request.rows, request.spec) for request in batch])
        except Exception as error:
            answers = [error] * len(batch)
        self._started = None
        self._metrics.batch.observe(sum(len(request.rows) for request in batch))
        self._metrics.batch_seconds.observe(perf_counter() - start)
        for request, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Exception):
                request.answer.set_exception(answer)
            else:
                request.answer.set_result(answer)

    def _take_batch(self) -> list[WaitingRequest]:
        """Remove a batch of requests from the queue and return it. All requests of a batch use the same model.

        The batch has the first request of the queue, and further ones up to a limit on the number of rows. Cancelled
        requests are dropped.
        """
        batch: list[WaitingRequest] = []
        others, rows = list[WaitingRequest](), 0
        for _ in range(len(self._queue)):
            request = self._queue.popleft()
            is_other = bool(batch) and request.model is not batch[0].model
            if is_other or (batch and rows + len(request.rows) > _MAX_BATCH_ROWS):
                others.append(request)
            elif request.answer.set_running_or_notify_cancel():
                batch.append(request)
                rows += len(request.rows)
        self._queue.extendleft(reversed(others))
        return batch
