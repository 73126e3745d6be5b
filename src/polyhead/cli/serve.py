"""`polyhead serve`."""

from pathlib import Path

from typer import Argument, Option

from polyhead.cli.options import ComputeType, Device, Engine
from polyhead.cli.streams import say
from polyhead.errors import MissingError, install_command

KEY_HELP = "Key that clients must send; required unless the address is local."
ORIGIN_HELP = "Site whose pages may use the server, e.g. https://app.example; repeatable."
HOST_HELP = "Extra allowed Host header, for a reverse proxy; repeatable."


def serve(
    models: list[Path] = Argument(help="Model or run directories."),
    host: str = Option("127.0.0.1", help="Address to bind to (default: this machine only)."),
    port: int = Option(8000, help="Port to bind to; 0 is any free port."),
    api_key: str | None = Option(None, envvar="POLYHEAD_API_KEY", help=KEY_HELP),
    queue: int = Option(256, help="Number of queued sentences; further requests get 429."),
    deadline: float = Option(30.0, help="Seconds after which a waiting request gets 503."),
    threads: int = Option(0, help="CPU threads of the model; 0: all cores (torch: all but one)."),
    device: Device = "auto",
    engine: Engine = "auto",
    compute_type: ComputeType = "auto",
    allow_host: list[str] | None = Option(None, metavar="NAME", help=HOST_HELP),
    allow_origin: list[str] | None = Option(None, metavar="ORIGIN", help=ORIGIN_HELP),
    access_log: bool = Option(False, "--access-log", help="Print a line for each response."),
) -> None:
    """Serve models over HTTP, with a web page. Ctrl-C or SIGTERM stops the server.

    polyhead serve runs/mine
    polyhead serve runs/mine runs/writer runs/bert runs/photos --port 8080
    polyhead serve runs/mine --host 0.0.0.0 --api-key "$(cat key.txt)"
    polyhead serve runs/mine --allow-host translate.example
    polyhead serve runs/mine --engine ctranslate2 --compute-type int8

    The page is http://127.0.0.1:8000/; requests are those of LibreTranslate:

    curl http://127.0.0.1:8000/translate -H "Content-Type: application/json"
    -d '{"q": "내일 회의가 있어요.", "source": "ko", "target": "en"}'
    """
    try:
        from polyhead.server.process import serve as run_server
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith(("polyhead", "torch")):
            raise
        raise MissingError(
            f"serving needs {error.name}: {install_command('serve')}", "missing_package"
        ) from None
    from polyhead.server.settings import Settings

    settings = Settings(
        host=host, port=port, api_key=api_key, queue=queue, deadline_seconds=deadline,
        threads=threads, device=device, engine=engine, compute_type=compute_type,
        access_log=say if access_log else None,
        allowed_hosts=tuple(name.lower() for name in allow_host or ()),
        allowed_origins=tuple(origin.lower() for origin in allow_origin or ()),
    )  # fmt: skip
    run_server(models, settings, say)
