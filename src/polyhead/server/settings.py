"""Settings of a server, and the limits of requests."""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from polyhead.errors import ConfigError

MAX_BODY = 2**20  # bytes of a request
MAX_IMAGE = 2**23  # bytes of a request with an image
MAX_PIXELS = 25_000_000  # of an image: up to 200 MB, in a child process
MAX_CHARACTERS = 10_000  # of all texts of a request
MAX_TEXTS = 64
MAX_N_BEST = 10
MAX_BEAM = 16
MAX_TOKENS = 1024  # of an output
MAX_BLANKS = 32  # one forward pass each
MAX_STREAMS = 16  # texts generated concurrently
MAX_UNPACKED = 2  # images decoded concurrently
MAX_CONNECTIONS = 1000
POSITIVE = ("queue", "deadline_seconds", "stream_seconds", "head_seconds", "drain_seconds")
HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
ORIGIN = re.compile(rf"https?://({HOST_NAME.pattern}|\[[0-9a-f:]+\])(:[0-9]{{1,5}})?")


@dataclass(frozen=True)
class Settings:
    """Address, access, queue and time limits of a server."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    queue: int = 256  # queued requests (segments of text); more are rejected with 429
    delay_seconds: float = 0.005  # that a batch waits for more requests
    deadline_seconds: float = 30.0  # until a request fails with 503; guaranteed to a stream
    stream_seconds: float = 300.0  # until a stream is ended
    head_seconds: float = 10.0  # until a connection without a whole request head is closed
    drain_seconds: float = 25.0  # for accepted requests when the server stops
    threads: int = 0  # of the model; 0: all cores, but one with torch
    device: str = "auto"
    engine: str = "auto"  # of translators: ctranslate2 where it can be used, else torch
    compute_type: str = "auto"  # of ctranslate2
    allowed_hosts: tuple[str, ...] = ()  # host names of a reverse proxy, in lower case
    allowed_origins: tuple[str, ...] = ()  # sites whose pages may use the server
    access_log: Callable[[str], None] | None = None  # called with a line for each request

    def __post_init__(self) -> None:
        for name in POSITIVE:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} = {getattr(self, name)}: must be positive", "bad_value")
        if self.threads < 0:
            message = f"threads = {self.threads}: must be positive, or 0 for all cores"
            raise ConfigError(message, "bad_value")
        if not 0 <= self.port < 2**16:
            message = f"port = {self.port}: must be from 0 (any free one) to 65535"
            raise ConfigError(message, "bad_value")
        self._check_names()
        if self.api_key is not None and not re.fullmatch("[ -~]{8,}", self.api_key):
            message = "the API key must be at least 8 printable ASCII characters"
            raise ConfigError(message, "bad_api_key")
        if not self.is_local and self.api_key is None:
            raise ConfigError(
                f"{self.host} is reachable from other machines: give --api-key, set "
                "POLYHEAD_API_KEY, or use --host 127.0.0.1",
                "missing_api_key",
            )

    def _check_names(self) -> None:
        host = "a host name such as polyhead.example, in lower case, without https:// and port"
        site = "a site such as https://app.example or http://localhost:3000, in lower case, "
        for option, names, pattern, expected in (
            ("host", self.allowed_hosts, HOST_NAME, host),
            ("origin", self.allowed_origins, ORIGIN, site + "without a path"),
        ):
            for name in names:
                if not pattern.fullmatch(name):
                    message = f"--allow-{option} {name}: expected {expected}"
                    raise ConfigError(message, f"bad_{option}")

    @property
    def is_local(self) -> bool:
        """Return whether the address is a loopback address."""
        return self.host == "localhost" or is_loopback(self.host)


@lru_cache(1024)
def is_loopback(host: str) -> bool:
    """Return whether an address is of this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
