"""Prometheus metrics of a server. Label values come from the server, never from a request."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
ROWS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Metrics of one server in their own registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "polyhead_requests", "Requests by route and status", ["route", "status"],
            registry=registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "polyhead_request_seconds", "Time from request head to response end", ["route"],
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.rejected = Counter(
            "polyhead_rejected", "Requests rejected because of load", ["reason"], registry=registry
        )
        self.waiting = Gauge("polyhead_queue_depth", "Queued requests", registry=registry)
        self.open = Gauge("polyhead_open_requests", "Open HTTP requests", registry=registry)
        self.batch_rows = Histogram(
            "polyhead_batch_rows", "Requests of a batch, or of a step of a running batch",
            buckets=ROWS, registry=registry,
        )  # fmt: skip
        self.batch_seconds = Histogram(
            "polyhead_batch_seconds", "Time of a batch, or of a step of a running batch",
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.characters = Counter("polyhead_characters", "Characters read", registry=registry)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)
