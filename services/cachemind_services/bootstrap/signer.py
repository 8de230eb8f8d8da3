"""Builds and runs the signer."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Final

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.file_lock import exclusive
from cachemind.adapters.host_memory import HostMemoryFile
from cachemind.adapters.kafka_groups import KafkaGroupOffsets
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_transaction import KafkaSoleWriter
from cachemind.adapters.key_verify import OpensslCheck
from cachemind.agents.audit_places import next_to_sign
from cachemind.agents.cuts_log import VerifyKeyEvent
from cachemind.agents.cuts_resume import CUTS_PARTITION
from cachemind.agents.cutter import Cutter, Cutting
from cachemind.agents.key_event_finder import KeyEventFinder
from cachemind.agents.key_watch import KeyWatch
from cachemind.agents.settled_place import SettledPlace
from cachemind.agents.signer import SignerDeps, run_signer
from cachemind.agents.signing import PartitionSigner, Signing
from cachemind.ports.audit import AuditMetrics, HeldKeys
from cachemind.receipts import LogId
from cachemind.types import Partition
from cachemind_services.audit_metrics import PrometheusAuditMetrics
from cachemind_services.bootstrap.checkpoints import dying_at
from cachemind_services.bootstrap.group import signer_name
from cachemind_services.bootstrap.keys import HeldByProcess
from cachemind_services.bootstrap.log import (
    codec_of,
    identify,
    kafka_of,
    topics_of,
)
from cachemind_services.bootstrap.pinned import pinned_path, read_pinned, verifier_of
from cachemind_services.settings import Settings

WAIT_S: Final = 3.0
"""Of readers and of the group's admin client: shorter than a step of the stop."""

TRANSACTION_S: Final = 3.0
"""For a batch of receipts, and again to give it up while the log is away."""

CUTS_KEPT: Final = "cuts.json"
"""In the data folder: what is known of the log of cuts."""

SETTLED: Final = "signer"
"""In the data folder: how far each partition was looked at."""

Failpoint = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerKeys:
    """Which log is signed, the keys that are held, and how a key event is verified."""

    log_id: LogId
    held: HeldKeys
    verify: VerifyKeyEvent


def run(settings: Settings, failpoint: str = "") -> int:
    """Sign with the keys that the settings name until SIGTERM; return the exit code.

    The process dies where it reaches `failpoint`, for tests.
    Raises: `InvalidSetting`, `StoreLocked` (another signer of this host runs),
    `TopicMisconfigured`, `LogUnavailable`, `LogRejected`.
    """
    pinned = read_pinned(pinned_path(settings))
    identify(settings)
    with _claim(settings), closing(HeldByProcess(settings)) as held:
        keys = SignerKeys(log_id=pinned.log_id, held=held, verify=verifier_of(pinned))
        return asyncio.run(sign(settings, keys, dying_at(failpoint)))


def _claim(settings: Settings) -> AbstractContextManager[None]:
    """Hold this host's name in the group. Raises: `StoreLocked`, `StoreUnavailable`."""
    return exclusive(settings.data_dir / "signer.lock")


async def sign(settings: Settings, keys: SignerKeys, failpoint: Failpoint) -> int:
    """Sign until SIGTERM; return the exit code of `run_signer`.

    The topics must be there. Raises: `InvalidSetting`, `LogUnavailable`.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with ExitStack() as closers:
        parts = _Parts(settings, keys, failpoint, PrometheusAuditMetrics(), closers)
        return await run_signer(parts.deps(stop))


class _Parts:
    """What the signer is put together from; `closers` closes what is opened here."""

    def __init__(
        self,
        settings: Settings,
        keys: SignerKeys,
        failpoint: Failpoint,
        metrics: AuditMetrics,
        closers: ExitStack,
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._failpoint = failpoint
        self._metrics = metrics
        self._closers = closers
        self._kafka = kafka_of(settings)
        self._topics = topics_of(settings)
        self._codec = codec_of(settings)
        self._check = OpensslCheck()
        self._wal = self._reader(self._topics.wal.name)
        self._audit = self._reader(self._topics.audit.name)
        self._cuts = self._reader(self._topics.audit_cuts.name)
        self._memory = HostMemoryFile(settings.data_dir / CUTS_KEPT)
        self._watch = KeyWatch(
            keys.log_id,
            self._cuts,
            keys.verify,
            self._check,
            keys.held,
            self._memory,
        )

    def deps(self, stop: asyncio.Event) -> SignerDeps:
        """Return what `run_signer` needs."""
        settings, wal = self._settings, self._topics.wal.name
        group = f"{settings.topic_prefix}-signer"
        offsets = KafkaGroupOffsets(self._kafka, group, wal, WAIT_S)
        self._closers.enter_context(closing(offsets))
        signing = self._signing()
        partitions = list(map(Partition, range(settings.partitions)))
        return SignerDeps(
            signer_of=partial(self._signer, signing),
            ends=partial(next_to_sign, self._wal, self._audit, partitions),
            cutter_of=self._cutter,
            keys=self._watch,
            wal=self._wal,
            group_offsets=offsets,
            kafka=self._kafka,
            wal_topic=wal,
            group=group,
            instance=signer_name(settings),
            metrics=self._metrics,
            stop=stop,
            patience_s=settings.watchdog_s,
        )

    def _reader(self, topic: str) -> KafkaReader:
        reader = KafkaReader(self._kafka, topic, request_s=WAIT_S, stall_s=WAIT_S)
        return self._closers.enter_context(closing(reader))

    def _signing(self) -> Signing:
        return Signing(
            log_id=self._keys.log_id,
            wal_topic=self._topics.wal.name,
            decoder=self._codec,
            wal=self._wal,
            audit=self._audit,
            clock=SystemClock(),
            keys=self._watch,
            metrics=self._metrics,
            failpoint=self._failpoint,
        )

    def _writer(self, topic: str, role: str, partition: Partition) -> KafkaSoleWriter:
        return KafkaSoleWriter(
            self._kafka,
            topic,
            f"{self._settings.topic_prefix}-{role}",
            TRANSACTION_S,
            partition,
        )

    def _signer(self, signing: Signing, partition: Partition) -> PartitionSigner:
        writer = self._writer(self._topics.audit.name, f"signer-{partition}", partition)
        kept = self._settings.data_dir / SETTLED / f"{partition}.json"
        settled = SettledPlace(HostMemoryFile(kept))
        return PartitionSigner(partition, signing, writer, settled)

    def _cutter(self) -> Cutter:
        keys = self._keys
        return Cutter(
            Cutting(
                log_id=keys.log_id,
                partitions=self._settings.partitions,
                wal_topic=self._topics.wal.name,
                cuts=self._cuts,
                audit=self._audit,
                writer=self._writer(
                    self._topics.audit_cuts.name,
                    f"cutter-{keys.log_id}",
                    CUTS_PARTITION,
                ),
                find_key_event=KeyEventFinder(
                    wal=self._wal,
                    decoder=self._codec,
                    verify=keys.verify,
                    metrics=self._metrics,
                ),
                verify=keys.verify,
                check=self._check,
                held=keys.held,
                memory=self._memory,
                clock=SystemClock(),
                metrics=self._metrics,
                failpoint=self._failpoint,
            )
        )
