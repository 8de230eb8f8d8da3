"""Going on in the log of cuts where this host was before.

The log grows by a cut a second. What is kept is its tree's frontier at one cut and the
key events so far; they count if the checkpoint that the topic has at that cut is a log
key's over just that tree. Else, and where nothing is kept, all of it is read.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence
from typing import Any, Final

import orjson

from cachemind.agents.cut_note import check_checkpoint
from cachemind.agents.cuts_log import CutsLog, Told, VerifyKeyEvent
from cachemind.codec.cuts import decode_cuts_record
from cachemind.core.cutting import LogOfCuts
from cachemind.core.key_validity import Verdict
from cachemind.core.merkle import leaf_hash
from cachemind.core.signature_check import SignatureCheck
from cachemind.errors import (
    AuditBroken,
    CacheError,
    LogError,
    OffsetOutOfRange,
    StoreUnavailable,
)
from cachemind.ports import LogReader
from cachemind.ports.audit import HostMemory
from cachemind.receipts import KeyRole, LogId
from cachemind.types import Offset, Partition, Sha256

log = logging.getLogger(__name__)

CUTS_PARTITION: Final = Partition(0)


def begun(
    log_id: LogId,
    cuts: LogReader,
    memory: HostMemory,
    verify: VerifyKeyEvent,
    check: SignatureCheck,
) -> tuple[CutsLog, Offset]:
    """Return the log of cuts as far as it is known, and the next offset to read.

    Raises: `LogUnavailable`.
    """
    try:
        kept = memory.load()
        if kept is not None:
            return _resumed(kept, log_id, cuts, verify, check)
    except OffsetOutOfRange as error:
        log.warning("what was kept of the log of cuts is of another one: %s", error)
    except LogError:
        raise
    except (CacheError, LookupError, TypeError, ValueError) as error:
        log.warning("what was kept of the log of cuts does not hold: %s", error)
    return CutsLog(log_id, verify), Offset(0)


def keep(known: CutsLog, offset: Offset, memory: HostMemory) -> None:
    """Keep the log of cuts, which ends with the cut at `offset`."""
    last = known.last
    if last is None or known.leaves.size != last.cut.index + 1:
        return
    content = {
        "log_id": last.cut.log_id,
        "offset": offset,
        "size": known.leaves.size,
        "nodes": [node.hex() for node in known.leaves.nodes],
        "told": [[one.index, _written(one)] for one in known.told],
    }
    try:
        memory.save(orjson.dumps(content))
    except StoreUnavailable as error:
        log.warning("the log of cuts will be read anew next time: %s", error)


def check_last(known: CutsLog, check: SignatureCheck) -> None:
    """Raise `AuditBroken` unless the last checkpoint is a log key's, and holds.

    Raises: `MalformedNote`.
    """
    last = known.last
    if last is None:
        return
    may = [
        one.public_key
        for one in known.keys.tenures()
        if one.role is KeyRole.LOG
        and known.keys.cut(one.key_id, last.cut.index) is Verdict.VALID
    ]
    check_checkpoint(last.checkpoint, last.cut, last.root, may, check)


def _resumed(
    kept: bytes,
    log_id: LogId,
    cuts: LogReader,
    verify: VerifyKeyEvent,
    check: SignatureCheck,
) -> tuple[CutsLog, Offset]:
    content = orjson.loads(kept)
    offset = Offset(content["offset"])
    found = decode_cuts_record(_value_at(cuts, offset))
    leaves = LogOfCuts.resumed(
        content["size"],
        [Sha256(bytes.fromhex(node)) for node in content["nodes"]],
        leaf_hash(found.leaf),
    )
    known = CutsLog(log_id, verify)
    known.resume(leaves, _read(content["told"]), found)
    check_last(known, check)
    return known, Offset(offset + 1)


def _value_at(cuts: LogReader, offset: Offset) -> bytes:
    for batch in cuts.read(CUTS_PARTITION, offset, Offset(offset + 1)):
        return batch[0].value or b""
    raise AuditBroken(f"cuts offset {offset}", "records-lost", "there is no record")


def _written(one: Told) -> object:
    if isinstance(one.what, bytes):
        return base64.b64encode(one.what).decode()
    return list(one.what)


def _read(told: Sequence[Any]) -> list[Told]:
    return [
        Told(
            index,
            base64.b64decode(what, validate=True)
            if isinstance(what, str)
            else tuple(map(int, what)),
        )
        for index, what in told
    ]
