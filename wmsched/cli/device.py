"""Command ``wmsched device``: this machine times candidates of searches elsewhere."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def device(
    tracker: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of TVM's RPC tracker.")],
    key: Annotated[str, typer.Option(help="Name of devices of this kind, as in wmsched tune --key.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: a free one.")] = 0,
    custom_addr: Annotated[
        str | None,
        typer.Option(help="Address of this machine for clients; default: the one that the tracker sees."),
    ] = None,
) -> None:
    """Make this machine a device for wmsched tune --rpc, in a network that you trust."""
    from wmsched.measure.tracker import Tracker
    from wmsched.metaschedule.rpc.server import serve
    from wmsched.tune.rpc.timed_models import handlers

    address = Tracker.parse(tracker, key, option="--tracker")
    try:
        serve(
            address,
            host=host,
            port=port,
            custom_addr=custom_addr,
            more=handlers(),
            tell=lambda text: print(f"wmsched: {text}", flush=True),
        )
    except KeyboardInterrupt:
        print("wmsched: the device is gone", file=sys.stderr)
        raise typer.Exit(130) from None
