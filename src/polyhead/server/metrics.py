"""Prometheus metrics of a server. Label values come from the server, never from a request."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
ROWS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Metrics of one server in their own registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        seconds = partial(Histogram, buckets=SECONDS, registry=registry)
        rows = partial(Histogram, buckets=ROWS, registry=registry)
        labels = ["route", "status"]
        self.requests = counter("polyhead_requests", "Requests by route and status", labels)
        of_request = "Time from request head to response end"
        self.seconds = seconds("polyhead_request_seconds", of_request, ["route"])
        rejected = "Requests rejected because of load"
        self.rejected = counter("polyhead_rejected", rejected, ["reason"])
        self.waiting = gauge("polyhead_queue_depth", "Queued requests")
        self.open = gauge("polyhead_open_requests", "Open HTTP requests")
        batch = "of a batch, or of a step of a running batch"
        self.batch_rows = rows("polyhead_batch_rows", f"Requests {batch}")
        self.batch_seconds = seconds("polyhead_batch_seconds", f"Time {batch}")
        self.characters = counter("polyhead_characters", "Characters read")
