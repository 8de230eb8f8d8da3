"""The materializer's consumer group: which one, and what it was last told."""

from __future__ import annotations

import secrets

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


def _own_group(settings: Settings) -> str:
    path = settings.data_dir / "store" / "id"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, secrets.token_hex(4).encode())
    store_id = path.read_text(encoding="ascii").strip()
    return f"{settings.topic_prefix}.materializer.{store_id}"
