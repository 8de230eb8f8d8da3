"""`cachemind demo-upstream`: load the model, say where it listens, serve."""

from __future__ import annotations

import argparse
import asyncio
import socket
import time
from pathlib import Path
from typing import Final

import uvicorn

from cachemind_services.broker.distribution import default_cache_dir
from cachemind_services.demo.chat_weights import MODEL_NAME, model_folder
from cachemind_services.demo.upstream import DemoUpstream, Model
from cachemind_services.sockets import bind_tcp, url_of

DEFAULT_PORT: Final = 11435
STOP_TIMEOUT_S: Final = 5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="0 picks a free one"
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="cores that the model may use"
    )
    parser.add_argument(
        "--cache-dir", type=Path, default=None, help="where the converted model is kept"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop; prints one line with the URL once it answers."""
    # Bound first: a taken port is known before seconds of loading.
    listener = bind_tcp(arguments.host, arguments.port)
    folder = model_folder(arguments.cache_dir or default_cache_dir())
    # Imported here: it brings torch, which takes seconds.
    from cachemind_services.demo.chat_model import ChatModel

    model = ChatModel(folder, threads=arguments.threads)
    return asyncio.run(_serve(model, listener))


async def _serve(model: Model, listener: socket.socket) -> int:
    server = uvicorn.Server(
        uvicorn.Config(
            DemoUpstream(model, MODEL_NAME, time.time),
            log_level="warning",
            timeout_graceful_shutdown=STOP_TIMEOUT_S,
        )
    )
    print(f"demo upstream: {MODEL_NAME} at {url_of(listener)}/v1", flush=True)
    await server.serve(sockets=[listener])
    return 0
