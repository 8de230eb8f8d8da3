"""The materializer's process on real Kafka and real RocksDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from subprocess import TimeoutExpired
from threading import Event, Thread

import pytest
from confluent_kafka import Producer

from cachemind.adapters.kafka_groups import KafkaGroupOffsets
from cachemind.adapters.kafka_writer import KafkaWriter
from cachemind.codec.codec import Codec
from cachemind.core.partitioner import partition_of
from cachemind.events import Body
from cachemind.types import Lsn, Namespace, Offset
from cachemind_services.broker import EmbeddedBroker
from tests.conftest import StartBroker
from tests.integration.folding_host import Host, host
from tests.wal_events import ALPHA, envelope, rolled_back, stored

pytestmark = pytest.mark.broker

CODEC = Codec()
HOME = partition_of(ALPHA.encode(), 2)
ELSEWHERE = next(
    Namespace(name)
    for name in ("beta", "gamma", "delta", "epsilon", "zeta")
    if partition_of(name.encode(), 2) != HOME
)


class Wal:
    """Appends events to the host's WAL."""

    def __init__(self, of: Host) -> None:
        self._host = of
        self._writer = KafkaWriter(of.place.settings(), of.place.wal)
        self.appended = 0

    def append(self, *bodies: Body, namespace: Namespace = ALPHA) -> Lsn:
        """Return the LSN of the last of `bodies` once all are durable."""
        waiting = []
        for body in bodies:
            event = envelope(self.appended, body, namespace)
            self.appended += 1
            record = CODEC.encode(event)
            waiting.append(self._writer.append(namespace.encode(), record, ()))
        return [future.result(30) for future in waiting][-1]

    @contextmanager
    def flood(self) -> Iterator[None]:
        """Append as long as the block runs, a few hundred events a second."""
        enough = Event()
        thread = Thread(target=self._flood, args=(enough,))
        thread.start()
        try:
            yield
        finally:
            enough.set()
            thread.join()

    def append_transactions(self, count: int, *, commit: bool) -> None:
        """Append `count` events, each in a transaction of its own."""
        producer = Producer(
            {
                **self._host.place.settings(),
                "transactional.id": f"{self._host.place.wal}-tx",
                "partitioner": "murmur2_random",
            }
        )
        producer.init_transactions(30)
        for _ in range(count):
            number = 10_000 + self.appended
            event = envelope(number, stored(number))
            self.appended += 1
            producer.begin_transaction()
            producer.produce(self._host.place.wal, CODEC.encode(event), ALPHA.encode())
            producer.flush(30)
            if commit:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)

    def append_raw(self, key: bytes, value: bytes) -> Lsn:
        """Append bytes as they are, with a header of our own."""
        return self._writer.append(key, value, (("h", b"1"),)).result(30)

    def _flood(self, enough: Event) -> None:
        while not enough.wait(0.01):
            first = self.appended
            self.append(*(stored(n) for n in range(first, first + 10)))

    def close(self) -> None:
        """Flush."""
        self._writer.close(10)


@pytest.fixture
def folding(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> Iterator[Host]:
    with host(broker, topic_prefix, tmp_path, patience_s=5.0) as running:
        yield running


@pytest.fixture
def wal(folding: Host) -> Iterator[Wal]:
    with closing(Wal(folding)) as open_wal:
        yield open_wal


def test_a_cold_start_and_the_live_tail_fold_each_event_once(
    folding: Host, wal: Wal
) -> None:
    wal.append(*(stored(n) for n in range(500)))
    folding.start()
    for number in range(500, 700):
        wal.append(stored(number))
    folding.wait_applied(folding.ends())
    state = folding.state(ALPHA, HOME)
    assert state.version == state.entries == state.counts["stored"] == 700


def test_sigterm_ends_with_the_group_where_the_store_is(
    folding: Host, wal: Wal
) -> None:
    wal.append(*(stored(n) for n in range(50)))
    folding.start()
    folding.wait_applied(folding.ends())
    wal.append(*(stored(n) for n in range(50, 80)))
    folding.wait_applied(folding.ends())
    assert folding.stop() == 0
    place = folding.place
    with closing(
        KafkaGroupOffsets(place.settings(), place.group, place.wal)
    ) as offsets:
        committed = offsets.committed(folding.partitions)
    assert committed == {p: at + 1 for p, at in folding.applied().items()}


@pytest.mark.parametrize("moved", [0, 40, 70])
def test_wherever_the_groups_offsets_were_moved_the_store_counts(
    folding: Host, wal: Wal, moved: int
) -> None:
    wal.append(*(stored(n) for n in range(40)))
    folding.start()
    folding.wait_applied(folding.ends())
    assert folding.stop() == 0
    wal.append(*(stored(n) for n in range(40, 80)))
    place = folding.place
    with closing(
        KafkaGroupOffsets(place.settings(), place.group, place.wal)
    ) as offsets:
        offsets.commit({HOME: Offset(moved)})
    folding.start()
    folding.wait_live()
    wal.append(stored(80))
    folding.wait_applied(folding.ends())
    assert folding.state(ALPHA, HOME).version == 81
    assert ("the store counts" in folding.output()) == (moved < 40)


@pytest.mark.parametrize(
    "rounds",
    [5, pytest.param(50, marks=(pytest.mark.slow, pytest.mark.timeout(1200)))],
)
def test_killed_at_any_point_it_folds_each_event_once(
    folding: Host, wal: Wal, tmp_path: Path, rounds: int
) -> None:
    moments = Random(rounds)
    with wal.flood():
        for _ in range(rounds):
            folding.start()
            folding.wait_more(moments.randrange(1, 3_000))
            folding.kill()
        folding.start()
    folding.wait_applied(folding.ends())
    assert folding.stop() == 0
    state = folding.state(ALPHA, HOME)
    assert state.version == state.entries == wal.appended
    assert folding.states() == folding.rebuilt(tmp_path / "again").states()


def test_two_members_of_one_group_both_hold_everything(
    folding: Host, wal: Wal, tmp_path: Path
) -> None:
    with closing(folding.beside(tmp_path / "beside")) as other:
        folding.start()
        folding.wait_live()
        with wal.flood():
            other.start()  # the group is rebalanced under load
            other.wait_more(50)
            folding.kill()  # and again, once the dead member's session ends
            other.wait_live()
            folding.start()
            folding.wait_more(50)
        for host_ in (folding, other):
            host_.wait_applied(folding.ends())
            assert host_.state(ALPHA, HOME).version == wal.appended
        assert folding.states() == other.states()


def test_a_corrupt_record_goes_to_the_dead_letters_whole(
    folding: Host, wal: Wal
) -> None:
    folding.start()
    folding.wait_live()
    wal.append(stored(1))
    corrupt = b"\xc3\x01 not an event"
    undecodable = wal.append_raw(b"alpha", CODEC.encode(envelope(7, stored(7)))[:-3])
    misplaced = wal.append_raw(b"beta", CODEC.encode(envelope(8, stored(8))))
    unframed = wal.append_raw(b"alpha", b"\x07" + corrupt)
    wal.append(stored(2))
    folding.wait_applied(folding.ends())
    assert folding.state(ALPHA, HOME).entries == 2
    letters = {
        dict(letter.headers)["cachemind-dlq-lsn"]: letter
        for letter in folding.dead_letters()
    }
    assert letters.keys() == {
        str(lsn).encode() for lsn in (undecodable, misplaced, unframed)
    }
    letter = letters[str(unframed).encode()]
    assert letter.value == b"\x07" + corrupt
    assert letter.headers[0] == ("h", b"1")
    facts = dict(letter.headers)
    assert facts["cachemind-dlq-key"] == b"alpha"
    assert facts["cachemind-dlq-reason"] == b"undecodable"
    misplaced_facts = dict(letters[str(misplaced).encode()].headers)
    assert misplaced_facts["cachemind-dlq-reason"] == b"misplaced"


def test_an_unknown_schema_halts_its_partition_and_the_others_go_on(
    folding: Host, wal: Wal
) -> None:
    folding.start()
    wal.append(*(stored(n) for n in range(20)))
    folding.wait_applied(folding.ends())
    before = folding.applied()[HOME]
    unknown = wal.append_raw(b"alpha", b"\xc3\x01" + b"\x11" * 8 + b"newer")
    wal.append(stored(21))
    for again in range(2):  # also over a start
        elsewhere = wal.append(stored(22 + again), namespace=ELSEWHERE)
        assert elsewhere.partition != HOME
        folding.wait_applied({elsewhere.partition: Offset(elsewhere.offset + 1)})
        folding.wait_output(f"fold stopped at {unknown}")
        assert "does not know" in folding.output()
        assert folding.applied()[HOME] == before
        assert folding.stop() == 0
        folding.start()


def test_a_rollback_that_nobody_can_do_halts_after_what_came_before_it(
    folding: Host, wal: Wal
) -> None:
    folding.start()
    wal.append(*(stored(n) for n in range(3)))
    rollback = wal.append(rolled_back(1))
    folding.wait_output(f"fold stopped at {rollback}")
    assert folding.applied()[HOME] + 1 == rollback.offset
    assert folding.stop() == 0


def test_transactions_leave_gaps_that_are_folded_over(folding: Host, wal: Wal) -> None:
    wal.append_transactions(5, commit=True)
    folding.start()
    folding.wait_live()
    wal.append(stored(100))
    folding.wait_applied(folding.ends())
    wal.append_transactions(3, commit=False)
    wal.append_transactions(5, commit=True)
    wal.append(stored(101))
    wal.append_transactions(2, commit=True)
    folding.wait_count(14)
    assert folding.state(ALPHA, HOME).entries == 14
    # A marker is the last thing on the log: that is no lag to die of.
    assert folding.applied()[HOME] + 1 < folding.ends()[HOME]
    assert folding.process is not None
    with pytest.raises(TimeoutExpired):
        folding.process.wait(folding.place.patience_s + 3)
    assert folding.stop() == 0


def test_a_broker_that_was_away_is_taken_up_again(
    start_broker: StartBroker, topic_prefix: str, tmp_path: Path
) -> None:
    broker = start_broker()
    with (
        host(broker, topic_prefix, tmp_path, patience_s=4.0) as folding,
        closing(Wal(folding)) as wal,
    ):
        folding.start()
        wal.append(*(stored(n) for n in range(10)))
        folding.wait_applied(folding.ends())
        broker.stop()
        assert folding.process is not None
        with pytest.raises(TimeoutExpired):
            folding.process.wait(8)
        broker.start()
        broker.wait_ready()
        wal.append(*(stored(n) for n in range(10, 30)))
        folding.wait_applied(folding.ends())
        assert folding.state(ALPHA, HOME).entries == 30
        assert folding.stop() == 0


def test_sigterm_while_the_broker_is_away_ends_in_time(
    start_broker: StartBroker, topic_prefix: str, tmp_path: Path
) -> None:
    broker = start_broker()
    with (
        host(broker, topic_prefix, tmp_path) as folding,
        closing(Wal(folding)) as wal,
    ):
        folding.start()
        wal.append(*(stored(n) for n in range(10)))
        folding.wait_applied(folding.ends())
        broker.stop()
        assert folding.stop(10) == 0
        broker.start()
        broker.wait_ready()
        folding.start()
        wal.append(stored(10))
        folding.wait_applied(folding.ends())
        assert folding.stop() == 0
