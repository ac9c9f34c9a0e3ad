"""Test batches: what is predicted together, the full queue, requests that gave up, and the end."""

import asyncio
import threading

import pytest

from ddpn.serving.batching import Batcher
from ddpn.serving.middleware import Limits, Metrics
from ddpn.serving.model import DEFAULT_SPEC
from ddpn.serving.schemas import RequestError, Row


class EchoModel:
    """A model that answers requests by their number of rows, remembers its batches, and waits for `go`."""

    def __init__(self, fail: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.go, self.fail = threading.Event(), fail
        self.go.set()

    def predict(self, requests):
        self.go.wait(5)
        self.batches.append([len(rows) for rows, _ in requests])
        if self.fail:
            raise RuntimeError("broken")
        return [[{"mean": len(rows)}] for rows, _ in requests]


def make_rows(size: int) -> list[Row]:
    return [Row()] * size


def run_scenario(scenario, **limits):
    """Run the scenario with a batcher that runs."""

    async def main():
        batcher = Batcher(Limits(**limits), Metrics())
        try:
            return await scenario(batcher)
        finally:
            await batcher.stop()

    return asyncio.run(main())


def test_waiting_requests_are_predicted_together_by_model_in_batches_of_256_rows():
    model, other = EchoModel(), EchoModel()
    model.go.clear()
    sizes = [(model, 1), (model, 100), (other, 1), (model, 156), (model, 1), (model, 300)]

    async def scenario(batcher):
        jobs = []
        for requested, size in sizes:
            jobs.append(asyncio.create_task(batcher.submit(requested, make_rows(size), DEFAULT_SPEC)))
            await asyncio.sleep(0.05 if len(jobs) == 1 else 0)  # the first is being predicted
        model.go.set()
        return await asyncio.gather(*jobs)

    assert run_scenario(scenario) == [[{"mean": size}] for _, size in sizes]
    assert model.batches == [[1], [100, 156], [1], [300]]
    assert other.batches == [[1]]


def test_a_full_queue_refuses_with_429():
    model = EchoModel()
    model.go.clear()

    async def scenario(batcher):
        first = asyncio.create_task(batcher.submit(model, make_rows(1), DEFAULT_SPEC))
        await asyncio.sleep(0.05)  # it is being predicted, and waits no longer
        others = [asyncio.create_task(batcher.submit(model, make_rows(1), DEFAULT_SPEC)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(RequestError) as caught:
            await batcher.submit(model, make_rows(1), DEFAULT_SPEC)
        model.go.set()
        await asyncio.gather(first, *others)
        return caught.value

    error = run_scenario(scenario, max_queue=2)
    assert (error.status, error.headers) == (429, {"Retry-After": "1"})


def test_requests_that_gave_up_are_not_predicted():
    model = EchoModel()
    model.go.clear()

    async def scenario(batcher):
        first = asyncio.create_task(batcher.submit(model, make_rows(1), DEFAULT_SPEC))
        await asyncio.sleep(0.05)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(batcher.submit(model, make_rows(7), DEFAULT_SPEC), 0.01)
        model.go.set()
        await first
        await batcher.submit(model, make_rows(2), DEFAULT_SPEC)

    run_scenario(scenario)
    assert model.batches == [[1], [2]]


def test_a_prediction_that_does_not_end_is_noticed():
    model = EchoModel()
    model.go.clear()

    async def scenario(batcher):
        job = asyncio.create_task(batcher.submit(model, make_rows(1), DEFAULT_SPEC))
        before = batcher.is_stuck
        async with asyncio.timeout(4):
            while not batcher.is_stuck:
                await asyncio.sleep(0.01)
        model.go.set()
        await job
        await batcher.submit(model, make_rows(1), DEFAULT_SPEC)
        return before, batcher.is_stuck

    assert run_scenario(scenario, timeout=0.05) == (False, False)


def test_an_error_of_the_model_reaches_every_request_of_the_batch():
    async def scenario(batcher):
        model = EchoModel(fail=True)
        jobs = [batcher.submit(model, make_rows(1), DEFAULT_SPEC) for _ in range(2)]
        return await asyncio.gather(*jobs, return_exceptions=True)

    assert [str(error) for error in run_scenario(scenario)] == ["broken", "broken"]


def test_queued_requests_are_finished_at_the_end():
    model = EchoModel()

    async def main():
        batcher = Batcher(Limits(), Metrics())
        jobs = [asyncio.create_task(batcher.submit(model, make_rows(1), DEFAULT_SPEC)) for _ in range(3)]
        await asyncio.sleep(0)
        await batcher.stop()
        return await asyncio.gather(*jobs)

    assert asyncio.run(main()) == [[{"mean": 1}]] * 3
