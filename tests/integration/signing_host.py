"""Signers of one log, and handles to break them, feed them and verify what they did."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event, Thread

from confluent_kafka import Producer

from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_topics import ensure_topics
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.codec import Codec
from cachemind.codec.cuts import (
    decode_cuts_record,
    decode_leaf,
    encode_key_event,
    encode_signed_key_event,
)
from cachemind.codec.receipts import (
    decode_receipt,
    decode_signed_receipt,
    encode_receipt,
    encode_signed_receipt,
)
from cachemind.core.audit_findings import Finding, Severity
from cachemind.core.audit_verify import AuditLog, Summary, Verification
from cachemind.core.audit_wal import WalJoin, WalRecord
from cachemind.core.key_event_record import policy_of
from cachemind.core.merkle import leaf_hash
from cachemind.core.receipt_chain import (
    key_event_signing_input,
    receipt_signing_input,
)
from cachemind.core.topics import Mode, topics
from cachemind.events import Body, PolicyChanged
from cachemind.ports import LogRecord
from cachemind.receipts import (
    SYSTEM_NAMESPACE,
    Cut,
    KeyChange,
    KeyEvent,
    KeyRole,
    Receipt,
    Seq,
    SignedKeyEvent,
    SignedReceipt,
)
from cachemind.types import Lsn, Namespace, Offset, Partition, Principal
from cachemind_services.broker import EmbeddedBroker
from tests.integration.forked import Forked
from tests.integration.serving import eventually
from tests.integration.signer_process import (
    LOG_ID,
    MEANS,
    ROOT,
    Place,
    key_named,
    signer_at,
)
from tests.wal_events import envelope, stored

CODEC = Codec()


class SignedLog:
    """A WAL, its audit log and the processes that sign it."""

    def __init__(self, place: Place, folder: Path, opened: ExitStack) -> None:
        self.place = place
        self.kafka = {"bootstrap.servers": place.bootstrap_servers}
        table = topics(place.partitions, Mode.DEVELOPMENT, place.prefix)
        self.topics = table
        self._folder = folder
        self._opened = opened
        self.numbers = 0
        ensure_topics(self.kafka, [table.wal, table.audit, table.audit_cuts])
        self.writer = KafkaWriter(self.kafka, table.wal.name)
        opened.callback(self.writer.close, 10)
        self.wal, self.audit, self.cuts = (
            opened.enter_context(closing(KafkaReader(self.kafka, spec.name)))
            for spec in (table.wal, table.audit, table.audit_cuts)
        )

    # ---- processes ------------------------------------------------------------------

    def start(self, failpoint: str = "", host: str = "host") -> Forked:
        """Start the signer of a host, which dies at `failpoint`."""
        data_dir = str(self._folder / host)
        place = replace(self.place, failpoint=failpoint, data_dir=data_dir)
        argument = json.dumps(asdict(place))
        process = Forked(signer_at, argument, self._folder / "signer.log")
        self._opened.callback(process.close)
        return process

    def output(self) -> str:
        """Return what all signers have logged."""
        return (self._folder / "signer.log").read_text(errors="replace")

    # ---- keys -----------------------------------------------------------------------

    def hold(self, role: KeyRole, *names: str) -> None:
        """Set which keys the signers hold."""
        (Path(self.place.keys) / role.value).write_text("\n".join(names))

    def key_event(
        self, change: KeyChange, role: KeyRole, name: str, last_good_cut: int = -1
    ) -> Lsn:
        """Put an event about a key on the log."""
        key = key_named(name)
        event = encode_key_event(
            KeyEvent(
                log_id=LOG_ID,
                change=change,
                role=role,
                key_id=key.key_id,
                public_key=key.public_key,
                last_good_cut=last_good_cut,
                at_ns=time.time_ns(),
                principal=Principal("operator"),
                reason="test",
            )
        )
        message = key_event_signing_input(event)
        signed = SignedKeyEvent(
            event=event, signatures=(ROOT.sign(message), key.sign(message))
        )
        policy = policy_of(encode_signed_key_event(signed))
        return self.append(PolicyChanged(policy=policy), namespace=SYSTEM_NAMESPACE)

    def add_first_keys(self) -> None:
        """Hold and add a receipt key and a log key, as a new installation does."""
        for role, name in ((KeyRole.RECEIPT, "receipt-1"), (KeyRole.LOG, "log-1")):
            self.hold(role, name)
            self.key_event(KeyChange.ADD, role, name)

    # ---- the WAL --------------------------------------------------------------------

    def append(self, *bodies: Body, namespace: Namespace) -> Lsn:
        """Append events; return the LSN of the last one."""
        waiting = []
        for body in bodies:
            self.numbers += 1
            event = envelope(self.numbers, body, namespace)
            waiting.append(
                self.writer.append(namespace.encode(), CODEC.encode(event), ())
            )
        return [future.result(30) for future in waiting][-1]

    def append_some(self, count: int) -> None:
        """Append so many events, of several namespaces in all partitions."""
        waiting = []
        for _ in range(count):
            self.numbers += 1
            namespace = Namespace(f"n{self.numbers % 7}")
            event = envelope(self.numbers, stored(self.numbers), namespace)
            record = CODEC.encode(event)
            waiting.append(self.writer.append(namespace.encode(), record, ()))
        for future in waiting:
            future.result(60)

    def append_raw(self, value: bytes | None) -> None:
        """Append a value as it is; None for a record without one."""
        producer = Producer({**self.kafka, "partitioner": "murmur2_random"})
        producer.produce(self.topics.wal.name, value, b"n1")
        assert producer.flush(30) == 0

    def append_transaction(self, count: int, *, commit: bool) -> None:
        """Append some events in one transaction."""
        settings = {**self.kafka, "transactional.id": f"{self.place.prefix}-test"}
        producer = Producer({**settings, "partitioner": "murmur2_random"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for _ in range(count):
            self.numbers += 1
            namespace = Namespace(f"n{self.numbers % 7}")
            event = envelope(self.numbers, stored(self.numbers), namespace)
            record = CODEC.encode(event)
            producer.produce(self.topics.wal.name, record, namespace.encode())
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    # ---- what is on the log ---------------------------------------------------------

    @property
    def partitions(self) -> list[Partition]:
        """Return the partitions of the WAL."""
        return list(map(Partition, range(self.place.partitions)))

    def records(self, reader: KafkaReader, partition: Partition) -> list[LogRecord]:
        """Return every committed record of a partition."""
        batches = reader.read(partition, *reader.bounds(partition))
        return [record for batch in batches for record in batch]

    def receipts(self, partition: Partition) -> list[Receipt]:
        """Return every receipt of a partition."""
        return [
            decode_receipt(decode_signed_receipt(record.value or b"").receipt)
            for record in self.records(self.audit, partition)
        ]

    def leaves(self) -> list[Cut | SignedKeyEvent]:
        """Return every leaf of the log of cuts."""
        return [
            decode_leaf(decode_cuts_record(record.value or b"").leaf)
            for record in self.records(self.cuts, Partition(0))
        ]

    def cuts_end(self) -> int:
        """Return where the topic of cuts ends; each cut takes two offsets."""
        return self.cuts.bounds(Partition(0))[1]

    def last_cut(self) -> Cut | None:
        """Return the newest cut."""
        cuts = [leaf for leaf in self.leaves() if isinstance(leaf, Cut)]
        return cuts[-1] if cuts else None

    def is_signed(self, partitions: Sequence[Partition] | None = None) -> bool:
        """Return whether the last record of each partition has a receipt."""
        for partition in self.partitions if partitions is None else partitions:
            records = self.records(self.wal, partition)
            if not records:
                continue
            receipts = self.records(self.audit, partition)
            if not receipts:
                return False
            last = decode_signed_receipt(receipts[-1].value or b"").receipt
            if decode_receipt(last).source != records[-1].lsn:
                return False
        return True

    def is_cut(self) -> bool:
        """Return whether a cut is over every receipt."""
        cut = self.last_cut()
        return cut is not None and all(
            head.size == len(self.records(self.audit, head.partition))
            for head in cut.heads
        )

    def wait_signed(self, timeout_s: float = 60.0) -> None:
        """Return once every record has a receipt and every receipt is under a cut."""
        eventually(self.is_signed, timeout_s)
        eventually(self.is_cut, timeout_s)

    def wait_first_cut(self) -> None:
        """Return once there is a cut."""
        eventually(lambda: self.last_cut() is not None, 60)

    def wait_key_events(self, count: int) -> None:
        """Return once the log of cuts has so many key events, or more."""

        def there() -> bool:
            found = [one for one in self.leaves() if isinstance(one, SignedKeyEvent)]
            return len(found) >= count

        eventually(there, 60)

    def wait_signing_by(self, name: str) -> None:
        """Return once the last receipt of every partition is signed by a key."""
        key_id = key_named(name).key_id

        def signs(partition: Partition) -> bool:
            # A partition that the load came to late may have no receipt yet.
            found = self.receipts(partition)
            return bool(found) and found[-1].key_id == key_id

        eventually(lambda: all(map(signs, self.partitions)), 60)

    @contextmanager
    def load(self) -> Iterator[None]:
        """Append as long as the block runs, a few hundred events a second."""
        enough = Event()

        def flood() -> None:
            while not enough.wait(0.02):
                self.append_some(10)

        thread = Thread(target=flood)
        thread.start()
        try:
            yield
        finally:
            enough.set()
            thread.join()

    # ---- what others do to it -------------------------------------------------------

    def forge_receipt(self, partition: Partition) -> None:
        """Append a receipt that follows on, of a record that is signed already."""
        record = self.records(self.audit, partition)[-1]
        signed = decode_signed_receipt(record.value or b"")
        last = decode_receipt(signed.receipt)
        receipt = encode_receipt(
            replace(
                last,
                seq=Seq(last.seq + 1),
                previous=leaf_hash(signed.receipt),
                source=Lsn(partition, Offset(last.source.offset + 1)),
            )
        )
        signature = key_named("receipt-1").sign(receipt_signing_input(receipt))
        value = encode_signed_receipt(
            SignedReceipt(receipt=receipt, signature=signature)
        )
        self._produce(self.topics.audit.name, value, partition)

    def forge_cut(self) -> None:
        """Append the last cut once more."""
        value = self._cuts()[-1].value
        self._produce(self.topics.audit_cuts.name, value or b"", Partition(0))

    def _produce(self, topic: str, value: bytes, partition: Partition) -> None:
        producer = Producer(self.kafka)
        producer.produce(topic, value, partition=partition)
        assert producer.flush(30) == 0

    # ---- the verdict ----------------------------------------------------------------

    def verified(self) -> tuple[Sequence[Finding], Summary]:
        """Verify everything by public keys, beside the WAL; return what is wrong."""
        log = AuditLog(
            cuts=lambda: [
                r.value or b"" for r in self.records(self.cuts, Partition(0))
            ],
            receipts={p: self._values(p) for p in self.partitions},
            wal={p: self._join(p) for p in self.partitions},
        )
        verification = Verification(log, MEANS)
        found = [
            one for one in verification.findings() if one.severity is not Severity.NOTE
        ]
        return found, verification.summary()

    def require_sound(self) -> Summary:
        """Hold the receipts against the WAL: one to one, in order, all under a cut."""
        found, summary = self.verified()
        assert not found, [str(one) for one in found]
        for partition in self.partitions:
            records = self.records(self.wal, partition)
            receipts = self.receipts(partition)
            assert [r.source for r in receipts] == [r.lsn for r in records]
            assert summary.covered[partition] == len(receipts)
        return summary

    def _cuts(self) -> list[LogRecord]:
        return self.records(self.cuts, Partition(0))

    def _values(self, partition: Partition) -> Iterator[bytes]:
        return (r.value or b"" for r in self.records(self.audit, partition))

    def _join(self, partition: Partition) -> WalJoin:
        records = [
            WalRecord(record.lsn.offset, record.value)
            for record in self.records(self.wal, partition)
        ]
        return WalJoin(partition, Offset(0), iter(records), CODEC.decode)


@contextmanager
def signed_log(
    broker: EmbeddedBroker,
    prefix: str,
    folder: Path,
    partitions: int = 3,
    patience_s: int = 60,
) -> Iterator[SignedLog]:
    """Yield a log with topics and keys of its own; end its signers in any case."""
    keys = folder / "keys"
    keys.mkdir()
    place = Place(
        bootstrap_servers=broker.bootstrap_servers,
        prefix=prefix,
        partitions=partitions,
        keys=str(keys),
        data_dir=str(folder / "host"),
        patience_s=patience_s,
    )
    with ExitStack() as opened:
        yield SignedLog(place, folder, opened)
