"""Metrics in the format of Prometheus. The only file that imports its client."""

import prometheus_client as client

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = own = client.CollectorRegistry()
        requests, seconds = "Requests that were answered.", "Time from a request to its answer."
        self.requests = client.Counter("ddpn_requests", requests, ["path", "method", "status"], registry=own)
        self.seconds = client.Histogram("ddpn_request_seconds", seconds, ["path"], buckets=_SECONDS, registry=own)
        self.rows = client.Counter("ddpn_rows", "Rows that were predicted.", ["model"], registry=own)
        self.ood = client.Counter("ddpn_ood_rows", "Rows flagged as out-of-distribution.", ["model"], registry=own)
        self.batch = client.Histogram("ddpn_batch_rows", "Rows predicted together.", buckets=_ROWS, registry=own)
        batch = "Time to predict a batch."
        self.batch_seconds = client.Histogram("ddpn_batch_seconds", batch, buckets=_SECONDS, registry=own)
        self.waiting = client.Gauge("ddpn_queue_requests", "Requests that wait to be predicted.", registry=own)
        self.reloads = client.Counter("ddpn_reloads", "New versions of models.", ["model", "result"], registry=own)
        self.model = client.Info("ddpn_model", "The version of each model.", ["model"], registry=own)

    def text(self) -> tuple[bytes, str]:
        """All metrics, and the type of the content."""
        return client.generate_latest(self._registry), client.CONTENT_TYPE_LATEST
