"""Key events: made and signed here, appended to the log, read back as they count."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.agents.cuts_log import CutsLog
from cachemind.agents.key_watch import CUTS_PARTITION
from cachemind.codec.cuts import encode_key_event, encode_signed_key_event
from cachemind.core.audit_means import Pinned
from cachemind.core.key_event_record import policy_of
from cachemind.core.public_keys import key_id_of
from cachemind.core.receipt_chain import key_event_signing_input
from cachemind.core.writing import Writing
from cachemind.events import Envelope, PolicyChanged
from cachemind.ports import SigningKey
from cachemind.receipts import (
    SYSTEM_NAMESPACE,
    KeyChange,
    KeyEvent,
    KeyRole,
    SignedKeyEvent,
)
from cachemind.types import (
    ID_BYTES,
    Lsn,
    Offset,
    Principal,
    TraceId,
    WriterId,
)
from cachemind_services.bootstrap.log import codec_of, kafka_of, topics_of
from cachemind_services.bootstrap.pinned import verifier_of
from cachemind_services.settings import Settings

APPEND_S: Final = 30.0
POLL_S: Final = 0.2
PRINCIPAL: Final = Principal("operator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What shall happen to a key. `last_good_cut` belongs to a revocation."""

    change: KeyChange
    role: KeyRole
    public_key: bytes
    reason: str
    last_good_cut: int = -1


class KeyEventLog:
    """The key events of one log. A context manager: what is appended is durable."""

    def __init__(self, settings: Settings, pinned: Pinned) -> None:
        self._settings = settings
        self._pinned = pinned
        self._codec = codec_of(settings)
        self._topics = topics_of(settings)
        self._clock = SystemClock()
        self._writer = KafkaWriter(kafka_of(settings), self._topics.wal.name)
        self._writing = Writing(
            WriterId(f"keys-{secrets.token_hex(4)}"), PRINCIPAL, secrets.token_bytes
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close(APPEND_S)

    def append(self, wanted: Wanted, root: SigningKey, own: SigningKey | None) -> Lsn:
        """Return where the event is on the log, signed by root and by its own key.

        Its own key is left out where it is revoked. Raises: `KeyRefused`,
        `KeyUnavailable`, `LogUnavailable`, `LogRejected`.
        """
        signed = self._signed(wanted, [root] if own is None else [root, own])
        # What nobody would believe must not get onto the log.
        verifier_of(self._pinned)(signed)
        record = self._codec.encode(self._envelope(encode_signed_key_event(signed)))
        future = self._writer.append(SYSTEM_NAMESPACE.encode(), record, ())
        return future.result(APPEND_S)

    def read(self) -> CutsLog:
        """Return the log of cuts as it is now.

        Raises: `LogUnavailable`; `AuditBroken` where it does not hold.
        """
        found = CutsLog(self._pinned.log_id, verifier_of(self._pinned))
        topic = self._topics.audit_cuts.name
        with closing(KafkaReader(kafka_of(self._settings), topic)) as reader:
            _, end = reader.bounds(CUTS_PARTITION)
            for batch in reader.read(CUTS_PARTITION, Offset(0), end):
                for record in batch:
                    found.take(record.value or b"", f"cuts offset {record.lsn.offset}")
        return found

    def wait(self, reached: Callable[[CutsLog], bool], timeout_s: float) -> bool:
        """Return whether the log of cuts gets that far in time."""
        deadline = time.monotonic() + timeout_s
        while not reached(self.read()):
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        return True

    def _signed(self, wanted: Wanted, keys: Sequence[SigningKey]) -> SignedKeyEvent:
        event = encode_key_event(
            KeyEvent(
                log_id=self._pinned.log_id,
                change=wanted.change,
                role=wanted.role,
                key_id=key_id_of(wanted.public_key),
                public_key=wanted.public_key,
                last_good_cut=wanted.last_good_cut,
                at_ns=self._clock.now_ns(),
                principal=PRINCIPAL,
                reason=wanted.reason,
            )
        )
        message = key_event_signing_input(event)
        return SignedKeyEvent(
            event=event, signatures=tuple(key.sign(message) for key in keys)
        )

    def _envelope(self, signed: bytes) -> Envelope:
        now_ns = self._clock.now_ns()
        body = PolicyChanged(policy=policy_of(signed))
        trace = TraceId(secrets.token_bytes(ID_BYTES))
        return self._writing.event(SYSTEM_NAMESPACE, body, trace, now_ns)
