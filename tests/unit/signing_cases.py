"""A WAL and an audit log in memory, with one partition, and what signs and cuts it."""

from __future__ import annotations

from cachemind.adapters.clock import ManualClock
from cachemind.adapters.host_memory import MemoryHostMemory
from cachemind.adapters.key_verify import OpensslCheck
from cachemind.adapters.memory_keys import MemoryKey
from cachemind.adapters.memory_log import MemoryLog
from cachemind.adapters.memory_sole_writer import MemorySoleWriter, MemoryTurns
from cachemind.agents.audit_reading import signed_receipt_of
from cachemind.agents.cutter import Cutter, Cutting
from cachemind.agents.key_event_finder import KeyEventFinder
from cachemind.agents.key_watch import KeyWatch
from cachemind.agents.settled_place import SettledPlace
from cachemind.agents.signing import PartitionSigner, Signing
from cachemind.codec import Codec
from cachemind.codec.cuts import (
    decode_cuts_record,
    decode_leaf,
    encode_key_event,
    encode_signed_key_event,
)
from cachemind.codec.receipts import decode_receipt
from cachemind.core.audit_means import Pinned, RootKey
from cachemind.core.cutting import Pace
from cachemind.core.key_event_record import policy_of
from cachemind.core.receipt_chain import key_event_signing_input
from cachemind.events import PolicyChanged
from cachemind.ports import LogRecord, SigningKey
from cachemind.receipts import (
    SYSTEM_NAMESPACE,
    Cut,
    KeyChange,
    KeyEvent,
    KeyId,
    KeyRole,
    LogId,
    Receipt,
    SignedKeyEvent,
)
from cachemind.types import Namespace, Offset, Partition, Principal
from cachemind_services.bootstrap.pinned import verifier_of
from tests.wal_events import ALPHA, BEGAN_NS, envelope, stored

LOG_ID = LogId("test.example/audit")
ROOT = MemoryKey("root")
PINNED = Pinned(
    log_id=LOG_ID, roots=(RootKey(key_id=ROOT.key_id, public_key=ROOT.public_key),)
)
ZERO = Partition(0)


class Held:
    """Keys by name and role; a test adds some as it goes."""

    def __init__(self) -> None:
        self.keys = {
            KeyRole.RECEIPT: [MemoryKey("receipt-1")],
            KeyRole.LOG: [MemoryKey("log-1")],
        }

    def find(self, role: KeyRole, key_id: KeyId) -> SigningKey | None:
        return next((key for key in self.keys[role] if key.key_id == key_id), None)

    def first(self, role: KeyRole) -> SigningKey | None:
        return next(iter(self.keys[role]), None)


class Counted:
    """`AuditMetrics` that a test looks at."""

    def __init__(self) -> None:
        self.receipts = 0
        self.unread = 0
        self.why: list[str] = []
        self.cuts: list[int] = []
        self.refused = 0

    def signed(self, partition: Partition, receipts: int) -> None:
        self.receipts += receipts

    def unreadable(self, partition: Partition) -> None:
        self.unread += 1

    def signer_lag(self, partition: Partition, records: int) -> None: ...

    def stopped(self, partition: Partition, reason: str) -> None:
        self.why.append(reason)

    def let_go(self, partition: Partition) -> None: ...

    def cut(self, receipts: int, took_s: float) -> None:
        self.cuts.append(receipts)

    def cutter_stopped(self, reason: str) -> None:
        self.why.append(reason)

    def key_event_refused(self) -> None:
        self.refused += 1


class Failpoints:
    """Calls what a test has put at a point, once."""

    def __init__(self) -> None:
        self.at: dict[str, object] = {}

    def __call__(self, reached: str) -> None:
        do = self.at.pop(reached, None)
        if callable(do):
            do()


class Signed:
    """The logs and everything around them."""

    system = SYSTEM_NAMESPACE

    def __init__(self) -> None:
        self.clock = ManualClock(BEGAN_NS)
        self.wal, self.audit, self.cuts = (MemoryLog(1, self.clock) for _ in range(3))
        self.held, self.metrics, self.failpoints = Held(), Counted(), Failpoints()
        self.turns, self.cutting_turns = MemoryTurns(), MemoryTurns()
        self.verify = verifier_of(PINNED)
        self.memory, self.place = MemoryHostMemory(), MemoryHostMemory()
        self.watch = self.new_watch()
        self._appended = 0
        self._writer = self.wal.writer()

    def new_watch(self) -> KeyWatch:
        return KeyWatch(
            LOG_ID,
            self.cuts.reader(),
            self.verify,
            OpensslCheck(),
            self.held,
            self.memory,
        )

    # ---- the WAL --------------------------------------------------------------------

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            self._appended += 1
            event = envelope(self._appended, stored(self._appended))
            self.append_raw(Codec().encode(event))

    def append_raw(self, value: bytes | None, namespace: Namespace = ALPHA) -> None:
        self._writer.append(namespace.encode(), value, ()).result()

    def unsigned_event(self) -> bytes:
        """Return a leaf that adds a key and that no root key has signed."""
        return self._event(KeyChange.ADD, KeyRole.LOG, "x", MemoryKey("not the root"))

    def key_event(
        self,
        change: KeyChange,
        role: KeyRole,
        name: str,
        root: MemoryKey = ROOT,
    ) -> None:
        signed = self._event(change, role, name, root)
        self._appended += 1
        body = PolicyChanged(policy=policy_of(signed))
        self.append_raw(
            Codec().encode(envelope(self._appended, body, SYSTEM_NAMESPACE)),
            SYSTEM_NAMESPACE,
        )

    def _event(
        self, change: KeyChange, role: KeyRole, name: str, root: MemoryKey
    ) -> bytes:
        key = MemoryKey(name)
        event = encode_key_event(
            KeyEvent(
                log_id=LOG_ID,
                change=change,
                role=role,
                key_id=key.key_id,
                public_key=key.public_key,
                last_good_cut=-1,
                at_ns=BEGAN_NS,
                principal=Principal("operator"),
                reason="test",
            )
        )
        message = key_event_signing_input(event)
        signatures = (root.sign(message), key.sign(message))
        return encode_signed_key_event(
            SignedKeyEvent(event=event, signatures=signatures)
        )

    def add_first_keys(self) -> None:
        self.key_event(KeyChange.ADD, KeyRole.RECEIPT, "receipt-1")
        self.key_event(KeyChange.ADD, KeyRole.LOG, "log-1")

    def records(self, log: MemoryLog | None = None) -> list[LogRecord]:
        reader = (log or self.wal).reader()
        batches = reader.read(ZERO, *reader.bounds(ZERO))
        return [record for batch in batches for record in batch]

    # ---- signing --------------------------------------------------------------------

    def signer(self) -> PartitionSigner:
        signing = Signing(
            log_id=LOG_ID,
            wal_topic="wal",
            decoder=Codec(),
            wal=self.wal.reader(),
            audit=self.audit.reader(),
            clock=self.clock,
            keys=self.watch,
            metrics=self.metrics,
            failpoint=self.failpoints,
        )
        self.writer = MemorySoleWriter(self.audit, ZERO, self.turns)
        return PartitionSigner(ZERO, signing, self.writer, SettledPlace(self.place))

    def sign_all(self) -> PartitionSigner:
        """Return a new signer that has signed everything."""
        signer = self.signer()
        signer.begin()
        signer.sign(self.records())
        return signer

    def receipts(self) -> list[Receipt]:
        return [
            decode_receipt(signed_receipt_of(record).receipt)
            for record in self.records(self.audit)
        ]

    def is_one_to_one(self) -> bool:
        sources = [receipt.source for receipt in self.receipts()]
        return sources == [record.lsn for record in self.records()]

    # ---- cutting --------------------------------------------------------------------

    def cut_all(self) -> None:
        """Run a cutter until every receipt is under a cut, or it gives up."""
        cutter = Cutter(
            Cutting(
                log_id=LOG_ID,
                partitions=1,
                wal_topic="wal",
                cuts=self.cuts.reader(),
                audit=self.audit.reader(),
                writer=MemorySoleWriter(self.cuts, ZERO, self.cutting_turns),
                find_key_event=KeyEventFinder(
                    wal=self.wal.reader(),
                    decoder=Codec(),
                    verify=self.verify,
                    metrics=self.metrics,
                ),
                verify=self.verify,
                check=OpensslCheck(),
                held=self.held,
                memory=self.memory,
                clock=self.clock,
                metrics=self.metrics,
                failpoint=self.failpoints,
                pace=Pace(wait_ns=1_000_000),
            )
        )
        rounds = iter(range(20))
        cutter.run(lambda: next(rounds, None) is None or self._is_cut())

    def take_over_cuts(self) -> None:
        """Do what another cutter does first."""
        MemorySoleWriter(self.cuts, ZERO, self.cutting_turns).take_over()

    def leaves(self) -> list[Cut | SignedKeyEvent]:
        return [
            decode_leaf(decode_cuts_record(record.value or b"").leaf)
            for record in self.records(self.cuts)
        ]

    def last_cut(self) -> Cut | None:
        cuts = [leaf for leaf in self.leaves() if isinstance(leaf, Cut)]
        return cuts[-1] if cuts else None

    def _is_cut(self) -> bool:
        cut = self.last_cut()
        return cut is not None and cut.heads[0].size == len(self.receipts())


def offset(number: int) -> Offset:
    """Return a number as an offset."""
    return Offset(number)
