"""The materializer's consumer group: which one, and what it was last told."""

from __future__ import annotations

import secrets
from pathlib import Path

from cachemind.adapters.file_sync import write_whole
from cachemind.adapters.group_memory import GroupMemory
from cachemind.adapters.kafka_topics import LogIdentity
from cachemind_services.bootstrap.log import topics_of
from cachemind_services.settings import Settings


def group_of(settings: Settings) -> str:
    """Return the consumer group of this host's stores: by default its own, kept."""
    return settings.group_id or _own_group(settings)


def offset_memory(settings: Settings, log: LogIdentity) -> GroupMemory:
    """Return where this host keeps what the group was last told of this log."""
    topic_id = log.topic_ids[topics_of(settings).wal.name]
    return GroupMemory(settings.data_dir / "store", group_of(settings), topic_id)


def host_id(settings: Settings) -> str:
    """Return the id of this host's stores; they get one where they have none."""
    path = _id_path(settings)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, secrets.token_hex(4).encode())
    return path.read_text(encoding="ascii").strip()


def known_host_id(settings: Settings) -> str | None:
    """Return the id of this host's stores, None where there never were any."""
    return host_id(settings) if _id_path(settings).exists() else None


def signer_name(settings: Settings) -> str:
    """Return the name of this host's signer in the group of all signers."""
    return f"signer-{host_id(settings)}"


def _id_path(settings: Settings) -> Path:
    return settings.data_dir / "store" / "id"


def _own_group(settings: Settings) -> str:
    return f"{settings.topic_prefix}.materializer.{host_id(settings)}"
