"""Writes a small audit log of known answers beside this file.

    python -m tests.vectors.make_audit_dump [--check]

`audit_dump.jsonl` has every record of both audit topics and of the WAL, a JSON object
a line; `audit_keys.json` is what an auditor pins; `audit_pinned_cut.txt` is the last
checkpoint as a witness has signed it. With --check nothing is written, and a
difference ends with exit code 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cachemind.adapters.memory_keys import MemoryKey
from cachemind.codec.cuts import decode_cuts_record
from cachemind.core.public_keys import pem_of
from cachemind.core.signed_note import SignedNote
from cachemind.receipts import KeyChange, KeyRole
from cachemind.types import Namespace
from tests.audit_dump import (
    LOG_ID,
    PINNED,
    Dump,
    DumpMaker,
    cosigned,
    lines_of,
)
from tests.wal_events import pinned, rolled_back, stored

FOLDER: Final = Path(__file__).parent
DUMP: Final = FOLDER / "audit_dump.jsonl"
KEYS: Final = FOLDER / "audit_keys.json"
PINNED_CUT: Final = FOLDER / "audit_pinned_cut.txt"

PARTITIONS: Final = 3
SHOP, ALPHA, BETA = Namespace("shop"), Namespace("alpha"), Namespace("beta")
RECEIPT_1, RECEIPT_2, RECEIPT_3 = (MemoryKey(f"receipt {n}") for n in (1, 2, 3))
LOG_1, LOG_2 = MemoryKey("log 1"), MemoryKey("log 2")
ADD, RETIRE, REVOKE = KeyChange.ADD, KeyChange.RETIRE, KeyChange.REVOKE


def build() -> Dump:
    """Return a log with a rotation of both keys, a rollback and a revoked key."""
    made = DumpMaker(PARTITIONS, RECEIPT_1, LOG_1)
    made.key_event(ADD, KeyRole.RECEIPT, RECEIPT_1)
    made.key_event(ADD, KeyRole.LOG, LOG_1)
    made.cut()
    _work(made, [SHOP, ALPHA, SHOP, BETA, SHOP])
    made.cut()
    made.cut()  # While nothing happens: silence is evidence, too.
    made.key_event(ADD, KeyRole.RECEIPT, RECEIPT_2)
    made.receipt_key = RECEIPT_2
    _work(made, [BETA, SHOP, ALPHA])
    made.cut()
    made.key_event(RETIRE, KeyRole.RECEIPT, RECEIPT_1)
    made.append(rolled_back(2), SHOP)
    made.sign(2, b"no event at all", None)
    made.cut()
    made.key_event(ADD, KeyRole.LOG, LOG_2)
    made.key_event(RETIRE, KeyRole.LOG, LOG_1)
    made.log_key = LOG_2
    made.cut()
    made.key_event(ADD, KeyRole.RECEIPT, RECEIPT_3)
    made.receipt_key = RECEIPT_3
    _work(made, [SHOP, BETA, ALPHA])
    made.cut()
    last_good = made.next_index() - 1
    made.receipt_key = RECEIPT_2
    made.key_event(REVOKE, KeyRole.RECEIPT, RECEIPT_3, last_good)
    _work(made, [ALPHA, SHOP, BETA, SHOP, ALPHA])
    made.cut()
    _work(made, [SHOP, BETA])
    made.cut()
    return made.dump()


def keys() -> str:
    """Return the file of what an auditor pins."""
    pinned_keys = {
        "log_id": LOG_ID,
        "root": [
            {"key_id": root.key_id, "public_key_pem": pem_of(root.public_key)}
            for root in PINNED.roots
        ],
        "witnesses": [
            {"name": one.name, "public_key_pem": pem_of(one.public_key)}
            for one in PINNED.witnesses
        ],
    }
    return json.dumps(pinned_keys, indent=2) + "\n"


def pinned_cut(dump: Dump) -> str:
    """Return the last checkpoint, cosigned."""
    note = SignedNote.parse(decode_cuts_record(dump.cuts[-1]).checkpoint)
    return str(cosigned(note, 1_700_000_000))


def files() -> Mapping[Path, str]:
    """Return each file and what is to be in it."""
    dump = build()
    return {
        DUMP: "".join(lines_of(dump)),
        KEYS: keys(),
        PINNED_CUT: pinned_cut(dump),
    }


def main(arguments: Sequence[str]) -> int:
    """Write the files or, with --check, compare them."""
    for path, text in files().items():
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{path} is not what this script makes\n")
            return 1
    return 0


def _work(made: DumpMaker, namespaces: Sequence[Namespace]) -> None:
    for namespace in namespaces:
        number = len(made.cuts) * 1_000 + sum(map(len, made.receipts))
        made.append(stored(number), namespace)
    made.append(pinned(number), namespaces[-1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
