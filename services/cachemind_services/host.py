"""Which processes one host runs for a role, and how they are started."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from cachemind.core.access import is_reserved
from cachemind.errors import BrokerError, InvalidSetting
from cachemind_services.bootstrap.claim import gateway_claim
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.broker.java import find_java
from cachemind_services.metric_files import VARIABLE, forget_gauges
from cachemind_services.setting_values import DATA_KEYS
from cachemind_services.settings import BOOTSTRAP, PREFIX, VIEWS, Settings
from cachemind_services.sockets import bind_tcp, bind_unix, require_loopback, url_of
from cachemind_services.supervisor import Child, own_command

BROKER_READY_S: Final = 60.0
BROKER_POLL_S: Final = 0.1
BROKER_GONE_S: Final = 10.0
"""How long the broker of a killed predecessor may take to follow it."""

RANK_GATEWAY: Final = 0
RANK_MATERIALIZER: Final = 1
RANK_SIGNER: Final = 2
"""After the gateways: what they have served is signed before the log is stopped."""

RANK_SINK: Final = 3
"""After the signer: what it has signed last is sealed too."""

RANK_BROKER: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The children of one host and the base URLs under which it serves."""

    settings: Settings
    children: tuple[Child, ...]
    urls: tuple[str, ...]


def plan_serve(settings: Settings, open_sockets: ExitStack) -> Plan:
    """Return the plan of `cachemind serve`: broker where embedded, fold, gateway.

    The listening sockets live as long as `open_sockets`. Raises: `InvalidSetting`.
    """
    _require_upstream(settings)
    _require_own_namespace(settings)
    _require_log_dir(settings)
    listeners, urls = _listen(settings, open_sockets)
    _own_metrics(settings, open_sockets)
    children: list[Child] = []
    if settings.embedded:
        _require_broker(settings)
        settings = _with_embedded_kafka(settings)
        children.append(_broker(settings))
    environ = _environ(settings)
    children.append(_role(settings, "materializer", RANK_MATERIALIZER, environ))
    children.append(_role(settings, "requests", RANK_GATEWAY, environ))
    if settings.audit_mode:
        children.append(_role(settings, "signer", RANK_SIGNER, environ))
        children.append(_role(settings, "receipts", RANK_SIGNER, environ))
        children.append(_role(settings, "sink", RANK_SINK, environ))
    children.extend(_workers(settings, listeners, environ))
    if settings.collect:
        # A process of its own: a sweep of a large store would hold the fold up.
        children.append(_role(settings, "collector", RANK_GATEWAY, environ))
    return Plan(settings=settings, children=tuple(children), urls=urls)


def plan_gateway(settings: Settings, open_sockets: ExitStack) -> Plan:
    """Return the plan of `cachemind gateway`: its workers alone."""
    _require_upstream(settings)
    _require_own_namespace(settings)
    listeners, urls = _listen(settings, open_sockets)
    _own_metrics(settings, open_sockets)
    workers = _workers(settings, listeners, _environ(settings))
    return Plan(settings=settings, children=tuple(workers), urls=urls)


def _require_upstream(settings: Settings) -> None:
    if not settings.upstream:
        raise InvalidSetting(
            "--upstream", "name the model server, for example http://127.0.0.1:11434"
        )


def _require_own_namespace(settings: Settings) -> None:
    if is_reserved(settings.namespace):
        raise InvalidSetting(
            "CACHEMIND_NAMESPACE",
            f"{settings.namespace} is the installation's own and is not served",
        )


def _require_log_dir(settings: Settings) -> None:
    """Demand the folder of audit mode where it is on, and only there."""
    if settings.audit_mode:
        _ = settings.keys_dir
    elif settings.log_dir is not None:
        raise InvalidSetting(
            "CACHEMIND_LOG_DIR", "is the folder of audit mode, which is off"
        )


def _require_broker(settings: Settings) -> None:
    """Find out now what no restart of the broker would change."""
    if settings.java is not None:
        try:
            find_java(settings.java)
        except BrokerError as error:
            raise InvalidSetting("java", str(error)) from error
    broker = EmbeddedBroker(settings.broker_dir)
    deadline = time.monotonic() + BROKER_GONE_S
    while (status := broker.status()).running:
        if time.monotonic() > deadline:
            raise InvalidSetting(
                "data_dir",
                f"a Kafka of another command runs on {settings.broker_dir} (process "
                f"{status.pid}); stop it, or name it by --bootstrap-servers "
                f"{status.bootstrap_servers}",
            )
        time.sleep(BROKER_POLL_S)


def _listen(
    settings: Settings, open_sockets: ExitStack
) -> tuple[list[socket.socket], tuple[str, ...]]:
    if not settings.auth and not settings.insecure:
        require_loopback(settings.host)
    tcp = open_sockets.enter_context(closing(bind_tcp(settings.host, settings.port)))
    listeners, urls = [tcp], [url_of(tcp)]
    if settings.uds is not None:
        listeners.append(open_sockets.enter_context(closing(bind_unix(settings.uds))))
        open_sockets.callback(settings.uds.unlink, missing_ok=True)
        urls.append(f"unix:{settings.uds}")
    return listeners, tuple(urls)


def _own_metrics(settings: Settings, held: ExitStack) -> None:
    """Empty the folder of metrics, once it is known that nobody uses it.

    Raises: `InvalidSetting` where the gateway of another command does.
    """
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    held.enter_context(gateway_claim(settings))
    metrics = _metrics_dir(settings)
    shutil.rmtree(metrics, ignore_errors=True)
    shutil.rmtree(settings.data_dir / VIEWS, ignore_errors=True)
    metrics.mkdir(parents=True)


def _with_embedded_kafka(settings: Settings) -> Settings:
    port = settings.broker_port or _free_port()
    kafka = {**settings.kafka, BOOTSTRAP: f"127.0.0.1:{port}"}
    # To the children it looks like a Kafka that hosts share, whose keys have a place.
    keys = settings.data_keys_url or str(settings.data_dir / DATA_KEYS)
    return replace(settings, broker_port=port, kafka=kafka, data_keys_url=keys)


def _free_port() -> int:
    with closing(bind_tcp("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def _broker(settings: Settings) -> Child:
    argv = own_command(
        "broker",
        "run",
        "--data-dir",
        str(settings.broker_dir),
        "--port",
        str(settings.broker_port),
        "--heap-mb",
        str(settings.broker_heap_mb),
        *(["--java", str(settings.java)] if settings.java else []),
    )

    async def ready() -> None:
        await _until_broker_answers(settings)

    return Child(name="broker", argv=argv, rank=RANK_BROKER, ready=ready, silent=True)


async def _until_broker_answers(settings: Settings) -> None:
    broker = EmbeddedBroker(settings.broker_dir)
    deadline = asyncio.get_running_loop().time() + BROKER_READY_S
    while asyncio.get_running_loop().time() < deadline:
        status = await asyncio.to_thread(broker.status)
        if status.ready and status.bootstrap_servers == settings.kafka[BOOTSTRAP]:
            return
        await asyncio.sleep(BROKER_POLL_S)
    raise BrokerError(f"the embedded Kafka did not answer in {BROKER_READY_S:.0f} s")


def _role(settings: Settings, name: str, rank: int, environ: dict[str, str]) -> Child:
    """Return the one process of a role, which is its command and its metrics' name."""
    return Child(
        name=name,
        argv=own_command(name),
        rank=rank,
        environ=environ,
        after=partial(forget_gauges, _metrics_dir(settings), name),
    )


def _workers(
    settings: Settings, listeners: Sequence[socket.socket], environ: dict[str, str]
) -> list[Child]:
    metrics = _metrics_dir(settings)
    fds = [listener.fileno() for listener in listeners]
    return [
        Child(
            name=f"gateway-{number}",
            argv=own_command(
                "gateway-worker", *(f"--fd={fd}" for fd in fds), f"--number={number}"
            ),
            rank=RANK_GATEWAY,
            environ=environ,
            fds=fds,
            after=partial(forget_gauges, metrics, f"gateway-{number}"),
        )
        for number in range(settings.workers)
    ]


def _metrics_dir(settings: Settings) -> Path:
    return settings.data_dir / "metrics"


def _environ(settings: Settings) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(PREFIX)
    }
    kept[VARIABLE] = str(_metrics_dir(settings))
    kept["HF_HUB_OFFLINE"] = "1"
    kept["TOKENIZERS_PARALLELISM"] = "false"
    return kept | settings.environ()
