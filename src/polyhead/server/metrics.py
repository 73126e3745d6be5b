"""What a server counts, for Prometheus. Labels come from our own tables, never from a request."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
ROWS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "polyhead_requests", "Requests by route and status", ["route", "status"],
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "polyhead_request_seconds", "From the request's head to the answer's end", ["route"],
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self.rejected = Counter(
            "polyhead_rejected", "Requests refused because of load", ["reason"],
            registry=self.registry,
        )  # fmt: skip
        self.waiting = Gauge(
            "polyhead_queue_depth", "Requests in the queue", registry=self.registry
        )
        self.open = Gauge("polyhead_open_requests", "In work", registry=self.registry)
        self.batch_rows = Histogram(
            "polyhead_batch_rows",
            "Requests in a batch, or in a step of a running batch",
            buckets=ROWS,
            registry=self.registry,
        )
        self.batch_seconds = Histogram(
            "polyhead_batch_seconds",
            "Time of a batch, or of a step of a running batch",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.characters = Counter(
            "polyhead_characters", "Characters that were read", registry=self.registry
        )

    def text(self) -> bytes:
        """All of them in Prometheus's text format."""
        return generate_latest(self.registry)
