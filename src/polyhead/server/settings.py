"""What a server is told when it starts, and the limits that every request must keep."""

import ipaddress
import re
from dataclasses import dataclass

from polyhead.errors import ConfigError

MAX_BODY = 2**20  # bytes of a request
MAX_IMAGE = 2**23  # … that brings an image
MAX_CHARACTERS = 10_000  # of all texts of a request together
MAX_TEXTS = 64
MAX_N_BEST = 10
MAX_BEAM = 16
MAX_TOKENS = 1024  # of an output
MAX_BLANKS = 32  # each is filled by a pass of the model over the whole text
MAX_STREAMS = 16  # texts that are being written at the same time
MAX_UNPACKED = 2  # images that are unpacked at the same time
MAX_CONNECTIONS = 1000
HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True)
class Settings:
    """Where to listen, whom to let in, and how long anybody waits."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    queue: int = 256  # pieces of text that wait at most; more are refused with 429
    delay_seconds: float = 0.005  # that a piece waits for company
    deadline_seconds: float = 30.0  # that a request waits for its answer
    drain_seconds: float = 25.0  # that are left to accepted requests when the server shall stop
    threads: int = 0  # of the model; 0 leaves one core to the rest
    device: str = "auto"
    allowed_hosts: tuple[str, ...] = ()  # names of a proxy in front, in small letters

    def __post_init__(self) -> None:
        for name in ("queue", "deadline_seconds", "drain_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} = {getattr(self, name)}: expected more than 0")
        if self.threads < 0:
            raise ConfigError(f"threads = {self.threads}: expected 0 (all cores but one) or more")
        if not 0 <= self.port < 2**16:
            raise ConfigError(f"port = {self.port}: expected 0 (any free one) to 65535")
        for name in self.allowed_hosts:
            if not HOST_NAME.fullmatch(name):
                raise ConfigError(
                    f"--allow-host {name}: expected a name such as polyhead.example, in small "
                    "letters and without https:// or a port"
                )
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ConfigError("the API key must consist of printable ASCII characters")
        if self.api_key is not None and len(self.api_key) < 8:
            raise ConfigError("the API key is short enough to be guessed; use 8 characters or more")
        if not self.is_local and self.api_key is None:
            raise ConfigError(
                f"{self.host} can be reached by others: give --api-key, or listen on 127.0.0.1"
            )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
