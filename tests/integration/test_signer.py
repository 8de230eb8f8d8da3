"""The signer's process on real Kafka: each record has its receipt, whatever happens."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from cachemind.adapters.kafka_truncate import delete_records
from cachemind.agents.signer import EXIT_STOPPED
from cachemind.receipts import UNREADABLE, Cut, KeyChange, KeyRole
from cachemind.types import Partition
from cachemind_services.broker import EmbeddedBroker
from tests.conftest import StartBroker
from tests.integration.serving import eventually
from tests.integration.signer_process import key_named
from tests.integration.signing_host import SignedLog, signed_log

pytestmark = pytest.mark.broker

QUICK = (
    "signer.appended",
    "signer.committed",
    "cutter.appended",
    "cutter.committed",
)
FAILPOINTS = (
    "signer.taken-over",
    "signer.signed",
    "signer.appended",
    "signer.committed",
    "cutter.taken-over",
    "cutter.events-committed",
    "cutter.signed",
    "cutter.appended",
    "cutter.committed",
)


@pytest.fixture
def log(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> Iterator[SignedLog]:
    with signed_log(broker, topic_prefix, tmp_path) as log:
        log.add_first_keys()
        yield log


def test_a_backlog_and_the_live_tail_are_signed_once_and_cut(log: SignedLog) -> None:
    log.append_some(3000)
    signer = log.start()
    log.wait_signed()
    for _ in range(5):
        log.append_some(20)
    log.wait_signed()
    assert signer.stop() == 0
    summary = log.require_sound()
    assert sum(summary.receipts.values()) == 3000 + 100 + 2
    assert isinstance(log.leaves()[-1], Cut)


def test_what_cannot_be_read_has_a_receipt_that_says_so(log: SignedLog) -> None:
    log.append_some(10)
    signer = log.start()
    log.wait_signed()
    log.append_raw(b"no event at all")
    log.append_raw(b"")
    log.append_raw(None)
    log.append_raw(b"\xc3\x01" + b"\x11" * 8 + b"of a newer build")
    log.append_some(10)
    log.wait_signed()
    summary = log.require_sound()
    assert summary.kinds[UNREADABLE] == 4
    assert signer.stop() == 0


@pytest.mark.slow
def test_transactions_on_the_log_leave_gaps_that_no_receipt_is_about(
    log: SignedLog,
) -> None:
    log.place = replace(log.place, patience_s=3)
    log.append_transaction(20, commit=True)
    log.append_transaction(20, commit=False)
    signer = log.start()
    log.wait_signed()
    for committed in (False, True, False):
        log.append_transaction(5, commit=committed)
        log.append_some(3)
    log.append_transaction(5, commit=False)
    log.wait_signed()
    # Marks are the last thing on the log: that is no lag to die of.
    with pytest.raises(TimeoutExpired):
        signer.ended(6)
    assert signer.stop() == 0
    summary = log.require_sound()
    assert sum(summary.receipts.values()) == 20 + 5 + 9 + 2


@pytest.mark.slow
def test_marks_that_were_deleted_with_what_is_signed_are_no_lost_records(
    log: SignedLog, tmp_path: Path
) -> None:
    log.append_some(20)
    log.append_transaction(20, commit=False)
    signer = log.start()
    log.wait_signed()
    ends = {partition: log.wal.bounds(partition)[1] for partition in log.partitions}
    kept = tmp_path / "host" / "signer"
    places = {kept / f"{partition}.json": end for partition, end in ends.items()}
    eventually(
        lambda: all(
            path.exists() and f'"position":{end}}}' in path.read_text()
            for path, end in places.items()
        )
    )
    assert signer.stop() == 0
    assert delete_records(log.kafka, log.topics.wal.name, ends) == ends
    before = [len(log.receipts(partition)) for partition in log.partitions]
    signer = log.start()
    log.append_some(20)
    eventually(log.is_signed, 60)
    assert signer.stop() == 0
    after = [len(log.receipts(partition)) for partition in log.partitions]
    assert sum(after) == sum(before) + 20
    assert "records-lost" not in log.output()


@pytest.mark.slow
def test_silence_is_cut_too(log: SignedLog) -> None:
    signer = log.start()
    log.wait_signed()
    before = len(log.leaves())
    eventually(lambda: len(log.leaves()) > before, 15)
    assert signer.stop() == 0
    log.require_sound()


@pytest.mark.parametrize(
    "failpoints",
    [
        pytest.param(QUICK, id="around-commits"),
        pytest.param(FAILPOINTS, id="all", marks=pytest.mark.slow),
    ],
)
def test_each_record_has_one_receipt_though_the_signer_dies_at_every_step(
    log: SignedLog, failpoints: Sequence[str]
) -> None:
    for number, failpoint in enumerate(failpoints):
        log.append_some(50)
        if failpoint == "cutter.events-committed":
            log.key_event(KeyChange.ADD, KeyRole.RECEIPT, f"spare-{number}")
        log.start(failpoint).died()
    signer = log.start()
    log.append_some(50)
    log.wait_signed()
    log.require_sound()
    assert signer.stop() == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [40])
def test_receipts_stay_one_to_one_over_many_kills_under_load(
    log: SignedLog, rounds: int
) -> None:
    chance = random.Random(rounds)
    common = [point for point in FAILPOINTS if point != "cutter.events-committed"]
    with log.load():
        for _ in range(rounds):
            signer = log.start(chance.choice([*common, ""]))
            if chance.random() < 0.5:
                time.sleep(chance.uniform(0, 6))
            else:
                before = log.cuts_end()
                eventually(
                    lambda s=signer, b=before: (  # type: ignore[misc]  # bound now
                        not s.alive() or log.cuts_end() > b + 2
                    ),
                    180,
                )
            signer.close()
        signer = log.start()
        log.wait_first_cut()
    log.wait_signed(300)
    log.require_sound()
    assert signer.stop() == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [12])
def test_two_signers_that_are_frozen_and_killed_in_turn_never_fork(
    log: SignedLog, rounds: int
) -> None:
    chance = random.Random(rounds)
    hosts = ("one", "other")
    signers = {host: log.start(host=host) for host in hosts}
    with log.load():
        for _ in range(rounds):
            host = chance.choice(hosts)
            if chance.random() < 0.3:
                signers[host].kill()
            else:
                signers[host].freeze()
                time.sleep(chance.uniform(0, 15))
                signers[host].thaw()
            time.sleep(chance.uniform(0, 3))
            if not signers[host].alive():
                signers[host] = log.start(host=host)
    log.wait_signed(300)
    log.require_sound()
    assert "fork" not in log.output()
    # A member that was frozen past its session may find that the group goes on
    # without it, and ends to start again.
    assert {signer.stop() for signer in signers.values() if signer.alive()} <= {0}


@pytest.mark.slow
def test_a_signer_that_was_frozen_cannot_add_what_another_has_signed(
    log: SignedLog,
) -> None:
    frozen = log.start()
    log.append_some(300)
    log.wait_signed()
    log.append_some(3)
    frozen.freeze()
    other = log.start(host="other")
    log.append_some(300)
    log.wait_signed()
    frozen.thaw()
    for _ in range(20):
        log.append_some(10)
    log.wait_signed()
    log.require_sound()
    assert frozen.alive()
    assert other.alive()
    assert frozen.stop() == 0
    log.append_some(10)
    log.wait_signed()
    assert other.stop() == 0
    log.require_sound()


def test_keys_change_under_load(log: SignedLog) -> None:
    signer = log.start()
    with log.load():
        log.wait_first_cut()
        for number in (2, 3):
            new, old = str(number), str(number - 1)
            log.hold(KeyRole.RECEIPT, f"receipt-{old}", f"receipt-{new}")
            log.hold(KeyRole.LOG, f"log-{old}", f"log-{new}")
            log.key_event(KeyChange.ADD, KeyRole.RECEIPT, f"receipt-{new}")
            log.key_event(KeyChange.ADD, KeyRole.LOG, f"log-{new}")
            log.wait_signing_by(f"receipt-{new}")
            log.key_event(KeyChange.RETIRE, KeyRole.RECEIPT, f"receipt-{old}")
            log.key_event(KeyChange.RETIRE, KeyRole.LOG, f"log-{old}")
            log.wait_key_events(4 * number - 2)
    log.wait_signed()
    assert signer.stop() == 0
    summary = log.require_sound()
    assert len(summary.keys) == 6


def test_a_receipt_key_that_is_not_held_ends_the_signer_with_its_name(
    log: SignedLog,
) -> None:
    signer = log.start()
    log.wait_signed()
    log.key_event(KeyChange.ADD, KeyRole.RECEIPT, "elsewhere")
    log.key_event(KeyChange.RETIRE, KeyRole.RECEIPT, "receipt-1")
    log.wait_key_events(4)
    log.append_some(10)
    assert signer.ended() == EXIT_STOPPED
    assert key_named("elsewhere").key_id in signer.output()
    log.hold(KeyRole.RECEIPT, "receipt-1", "elsewhere")
    signer = log.start()
    log.wait_signed()
    assert signer.stop() == 0
    log.require_sound()


@pytest.mark.slow
def test_receipts_of_another_writer_stop_their_partition_and_no_other(
    log: SignedLog,
) -> None:
    signer = log.start()
    log.append_some(30)
    log.wait_signed()
    one = Partition(1)
    log.forge_receipt(one)
    log.append_some(30)
    eventually(lambda: "fork" in signer.output())
    others = [p for p in log.partitions if p != one]
    eventually(lambda: log.is_signed(others))
    log.append_some(30)
    eventually(lambda: log.is_signed(others))
    assert not log.is_signed([one])
    assert signer.stop() == 0
    found, _ = log.verified()
    assert {finding.place.partition for finding in found} == {one}


@pytest.mark.slow
def test_a_forged_cut_ends_the_cutter_and_nothing_more_is_signed(
    log: SignedLog,
) -> None:
    signer = log.start()
    log.append_some(30)
    log.wait_signed()
    assert signer.stop() == 0
    log.forge_cut()
    before = len(log.leaves())
    signer = log.start()
    eventually(lambda: "no more cuts" in signer.output())
    log.append_some(30)
    eventually(log.is_signed)
    assert signer.stop() == 0
    assert len(log.leaves()) == before


@pytest.mark.slow
def test_a_broker_that_was_away_is_taken_up_again(
    start_broker: StartBroker, topic_prefix: str, tmp_path: Path
) -> None:
    broker = start_broker()
    with signed_log(broker, topic_prefix, tmp_path, patience_s=4) as log:
        log.add_first_keys()
        signer = log.start()
        log.append_some(100)
        log.wait_signed()
        broker.stop()
        with pytest.raises(TimeoutExpired):
            signer.ended(8)
        broker.start()
        broker.wait_ready()
        log.append_some(100)
        log.wait_signed()
        assert signer.stop() == 0
        log.require_sound()


def test_sigterm_while_the_broker_is_away_ends_in_time(
    start_broker: StartBroker, topic_prefix: str, tmp_path: Path
) -> None:
    broker = start_broker()
    with signed_log(broker, topic_prefix, tmp_path) as log:
        log.add_first_keys()
        signer = log.start()
        log.append_some(100)
        log.wait_signed()
        os.kill(broker.pid, signal.SIGKILL)
        assert signer.stop(10) == 0


@pytest.mark.slow  # for the second start of Kafka
def test_what_sigterm_ended_while_the_broker_was_away_goes_on_afterwards(
    start_broker: StartBroker, topic_prefix: str, tmp_path: Path
) -> None:
    broker = start_broker()
    with signed_log(broker, topic_prefix, tmp_path) as log:
        log.add_first_keys()
        signer = log.start()
        log.append_some(100)
        log.wait_signed()
        broker.stop()
        assert signer.stop(10) == 0
        broker.start()
        broker.wait_ready()
        log.append_some(10)
        signer = log.start()
        log.wait_signed()
        assert signer.stop() == 0
        log.require_sound()
