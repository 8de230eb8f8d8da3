"""Run by a test as a process of its own: fold the endless log until killed.

python -m tests.adapters.rocks_writing FOLDER SEED MEMTABLE_BYTES
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from cachemind.adapters.rocks_options import RocksMemory
from cachemind.adapters.rocks_store import RocksStore
from cachemind.adapters.store_rows import StoreIdentity
from cachemind.core.working_set import WorkingSet
from cachemind.types import Offset
from tests.endless_log import event_at
from tests.fold_cases import PARTITION, lsn

IDENTITY = StoreIdentity(cluster_id="cluster", topic_id="topic", partition=PARTITION)
LARGEST_BATCH = 40


def fold_batch(store: RocksStore, size: int) -> Offset:
    """Commit the next `size` events of the endless log; return the last's offset."""
    work = WorkingSet(lambda name: (store.namespace(name), store.reader(name)))
    first = store.applied() + 1
    for offset in range(first, first + size):
        work.apply(event_at(offset), lsn(offset))
    last = Offset(first + size - 1)
    store.commit(last, work.steps())
    return last


def main(folder: str, seed: str, memtable_bytes: str) -> None:
    """Write for ever; one line on stdout for each commit."""
    sizes = Random(int(seed))
    memory = RocksMemory(memtable_bytes=int(memtable_bytes))
    store = RocksStore(Path(folder), IDENTITY, memory)
    while True:
        last = fold_batch(store, sizes.randint(1, LARGEST_BATCH))
        sys.stdout.write(f"{last}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
