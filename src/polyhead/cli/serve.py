"""`polyhead serve`: the command, and what it says while it runs."""

from pathlib import Path
from typing import Annotated

import typer

from polyhead.cli.options import Device, app


@app.command()
def serve(
    models: Annotated[list[Path], typer.Argument(help="Models' folders, or runs'.")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 is any free one.")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="POLYHEAD_API_KEY",
            help="What clients must send; needed for any address but this machine's own.",
        ),
    ] = None,
    queue: Annotated[int, typer.Option(help="Sentences that may wait; more get 429.")] = 256,
    deadline: Annotated[float, typer.Option(help="Seconds until a request gets 503.")] = 30.0,
    threads: Annotated[int, typer.Option(help="Of the model; all cores but one unless given.")] = 0,
    device: Device = "auto",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A proxy's name, under which it asks; may be repeated."),
    ] = None,
) -> None:
    """Serve models to other programs, and a page to look inside them. Ctrl-C or SIGTERM ends it.

    polyhead serve runs/mine
    polyhead serve runs/mine runs/writer runs/bert runs/photos --port 8080
    polyhead serve runs/mine --host 0.0.0.0 --api-key "$(cat key.txt)"
    polyhead serve runs/mine --allow-host translate.example

    Then http://127.0.0.1:8000/ is the page, and other programs ask as they ask LibreTranslate:

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
        raise MissingError(f"serving needs {error.name}: pip install 'polyhead[serve]'") from None
    from polyhead.server.settings import Settings

    settings = Settings(
        host=host, port=port, api_key=api_key, queue=queue, deadline_seconds=deadline,
        threads=threads, device=device,
        allowed_hosts=tuple(name.lower() for name in allow_host or ()),
    )  # fmt: skip
    run_server(models, settings, say)
