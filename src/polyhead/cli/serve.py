"""`polyhead serve`."""

from pathlib import Path
from typing import Annotated

import typer

from polyhead.cli.options import Device


def serve(
    models: Annotated[list[Path], typer.Argument(help="Model or run directories.")],
    host: Annotated[
        str, typer.Option(help="Address to bind to (default: this machine only).")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to bind to; 0 is any free port.")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="POLYHEAD_API_KEY",
            help="Key that clients must send; required unless the address is local.",
        ),
    ] = None,
    queue: Annotated[
        int, typer.Option(help="Number of queued sentences; further requests get 429.")
    ] = 256,
    deadline: Annotated[
        float, typer.Option(help="Seconds after which a waiting request gets 503.")
    ] = 30.0,
    threads: Annotated[
        int, typer.Option(help="CPU threads for the model; 0 is all cores but one.")
    ] = 0,
    device: Device = "auto",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Extra allowed Host header, for a reverse proxy; repeatable."
        ),
    ] = None,
) -> None:
    """Serve models over HTTP, with a web page. Ctrl-C or SIGTERM stops the server.

    polyhead serve runs/mine
    polyhead serve runs/mine runs/writer runs/bert runs/photos --port 8080
    polyhead serve runs/mine --host 0.0.0.0 --api-key "$(cat key.txt)"
    polyhead serve runs/mine --allow-host translate.example

    The page is http://127.0.0.1:8000/; requests are those of LibreTranslate:

    curl http://127.0.0.1:8000/translate -H "Content-Type: application/json"
    -d '{"q": "내일 회의가 있어요.", "source": "ko", "target": "en"}'
    """
    from polyhead.cli.console import say
    from polyhead.errors import MissingError

    try:
        from polyhead.server.process import serve as run_server
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("polyhead"):
            raise
        raise MissingError(
            f"serving needs {error.name}: pip install 'polyhead[serve]'", "missing_package"
        ) from None
    from polyhead.server.settings import Settings

    settings = Settings(
        host=host, port=port, api_key=api_key, queue=queue, deadline_seconds=deadline,
        threads=threads, device=device,
        allowed_hosts=tuple(name.lower() for name in allow_host or ()),
    )  # fmt: skip
    run_server(models, settings, say)
