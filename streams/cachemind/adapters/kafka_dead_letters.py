"""Puts dead letters back on the topic that they came from, each once.

The record and the note that it was put back are one Kafka transaction, and whoever
replays takes over from who did before: so what one reads on the dead-letter topic
after taking over is what was put back, whatever died in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from cachemind.adapters.kafka_config import Properties
from cachemind.adapters.kafka_transaction import KafkaSoleWriter, Placed
from cachemind.core.dead_letter import Letter, Replay, put_back, replay_headers
from cachemind.core.topics import TopicSpec
from cachemind.types import Lsn

DEADLINE_S: Final = 20.0


class KafkaReplays:
    """Puts dead letters back. Use it from one thread."""

    def __init__(self, properties: Properties, dlq: TopicSpec) -> None:
        """Contact no broker yet. Raises: `InvalidSetting`."""
        largest = {"message.max.bytes": str(dlq.max_message_bytes)}
        self._dlq = dlq.name
        self._writer = KafkaSoleWriter(
            {**properties, **largest}, dlq.name, f"{dlq.name}.replay", DEADLINE_S
        )

    def take_over(self) -> None:
        """End every other replay; what it has open is aborted.

        Do so before reading what was replayed, and after an error of `replay`.
        Raises: `LogUnavailable`, `LogRejected`.
        """
        self._writer.take_over()

    def replay(
        self,
        letter: Letter,
        by: str,
        before_commit: Callable[[], None],
        without: Collection[str] = (),
    ) -> Lsn:
        """Return where the record is now, once that and the note are committed.

        Its headers named `without` are left out.
        Raises: `LogRejected`, and then nothing was; `LogUnavailable`, and then nothing
        was or, where its message says so, that is not known.
        """
        topic, lsn = letter.source.topic, letter.source.lsn
        record = Placed(
            topic=topic,
            key=letter.key,
            value=letter.value,
            headers=put_back(letter, without),
            # Without a key Kafka would pick any partition.
            partition=lsn.partition if letter.key is None else None,
        )
        note = Placed(
            topic=self._dlq,
            key=topic.encode(),
            value=b"",
            headers=replay_headers(Replay(source=letter.source, by=by)),
        )
        return self._writer.commit([record, note], before_commit)[0]

    def close(self) -> None:
        """Leave the cluster."""
        self._writer.close()
