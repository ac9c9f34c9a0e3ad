"""Metrics in the format of Prometheus. The only file that imports its client."""

from typing import Any

import prometheus_client as client

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = client.CollectorRegistry()
        known: dict[str, Any] = {"registry": self.registry}
        labels = ["path", "method", "status"]
        self._requests = client.Counter("ddpn_requests", "Requests that were answered.", labels, **known)
        self._seconds = client.Histogram(
            "ddpn_request_seconds", "Time from a request to its answer.", ["path"], buckets=_SECONDS, **known
        )
        self._rows = client.Counter("ddpn_rows", "Rows that were predicted.", ["model"], **known)
        self._ood = client.Counter("ddpn_ood_rows", "Rows flagged as out-of-distribution.", ["model"], **known)
        self._batch = client.Histogram("ddpn_batch_rows", "Rows predicted together.", buckets=_ROWS, **known)
        self._batch_seconds = client.Histogram(
            "ddpn_batch_seconds", "Time to predict a batch.", buckets=_SECONDS, **known
        )
        self._waiting = client.Gauge("ddpn_queue_requests", "Requests that wait to be predicted.", **known)
        self._reloads = client.Counter("ddpn_reloads", "New versions of models.", ["model", "result"], **known)
        self._model = client.Info("ddpn_model", "The version of each model.", ["model"], **known)

    def request(self, path: str, method: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests.labels(path, method, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def rows(self, model: str, answers: list[dict[str, Any]]) -> None:
        """Count predicted rows, and those that are flagged."""
        self._rows.labels(model).inc(len(answers))
        self._ood.labels(model).inc(sum(bool(answer.get("ood")) for answer in answers))

    def batch(self, requests: int, rows: int, seconds: float) -> None:
        """Count a batch."""
        self._batch.observe(rows)
        self._batch_seconds.observe(seconds)

    def waiting(self, of: Any) -> None:
        """Show what a callable returns as the length of the queue."""
        self._waiting.set_function(of)

    def reload(self, model: str, succeeded: bool) -> None:
        """Count a new version."""
        self._reloads.labels(model, "loaded" if succeeded else "failed").inc()

    def model(self, name: str, version: str) -> None:
        """Show the version of a model."""
        self._model.labels(name).info({"version": version})

    def text(self) -> tuple[bytes, str]:
        """All metrics, and the type of the content."""
        return client.generate_latest(self.registry), client.CONTENT_TYPE_LATEST
