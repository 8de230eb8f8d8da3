"""How this package opens RocksDB, and what all stores of a process share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBufferManager,
)

from cachemind.adapters.store_rows import after
from cachemind.errors import StoreLocked, StoreUnavailable

MIB: Final = 1024 * 1024
DEFAULT_CACHE_BYTES: Final = 128 * MIB
DEFAULT_WRITE_BUFFER_BYTES: Final = 64 * MIB
DEFAULT_MEMTABLE_BYTES: Final = 16 * MIB
_LOGS_KEPT: Final = 2
_LOG_BYTES: Final = 4 * MIB
_BLOOM_BITS: Final = 10


class RocksMemory:
    """One block cache and one write buffer limit for all stores of a process.

    Write buffers are charged to the cache, so `cache_bytes` bounds both.
    """

    def __init__(
        self,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        write_buffer_bytes: int = DEFAULT_WRITE_BUFFER_BYTES,
        memtable_bytes: int = DEFAULT_MEMTABLE_BYTES,
    ) -> None:
        self.memtable_bytes = memtable_bytes
        self.cache = Cache(cache_bytes)
        self.buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            write_buffer_bytes, allow_stall=False, cache=self.cache
        )

    def used_bytes(self) -> int:
        """Return what cache and write buffers hold now."""
        return self.cache.get_usage()


def store_options(memory: RocksMemory, *, create: bool) -> Options:
    """Return the options for owner and readers alike.

    All files stay open: a secondary must keep reading files that the owner has
    deleted since (RocksDB wiki, "Read-only and Secondary instances").
    """
    options = Options(raw_mode=True)
    options.create_if_missing(create)
    options.set_max_open_files(-1)
    options.set_write_buffer_size(memory.memtable_bytes)
    options.set_write_buffer_manager(memory.buffers)
    options.set_max_total_wal_size(2 * DEFAULT_WRITE_BUFFER_BYTES)
    options.set_keep_log_file_num(_LOGS_KEPT)
    options.set_max_log_file_size(_LOG_BYTES)
    options.set_compression_type(DBCompressionType.lz4())
    table = BlockBasedOptions()
    table.set_block_cache(memory.cache)
    table.set_bloom_filter(_BLOOM_BITS, block_based=False)
    table.set_format_version(5)
    options.set_block_based_table_factory(table)
    return options


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn RocksDB's errors into ours. Raises: `StoreLocked`, `StoreUnavailable`.

    rocksdict raises bare `Exception`s, told apart by RocksDB's message alone.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        if "/LOCK: " in text:
            raise StoreLocked(f"{path}: another process owns this store") from error
        raise StoreUnavailable(f"{path}: {text}") from error


class RocksRows:
    """`Rows` over an open database: what it shows at the moment of each call."""

    def __init__(self, database: Rdict, path: Path) -> None:
        self._database = database
        self._path = path

    def get(self, key: bytes) -> bytes | None:
        """Return the value at `key`. Raises: `StoreUnavailable`."""
        try:
            value: bytes | None = self._database.get(key)
        except Exception as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error
        return value

    def last(self, prefix: bytes) -> bytes | None:
        """Return the greatest key that starts with `prefix`.

        Raises: `StoreUnavailable`.
        """
        with translated(self._path):
            found = self._database.iter()
            found.seek_for_prev(after(prefix))
            key = cast(bytes, found.key()) if found.valid() else b""
        return key if key.startswith(prefix) else None

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows with keys in [first, end) as they were when it started.

        Raises: `StoreUnavailable`.
        """
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        with translated(self._path):
            found = self._database.items(from_key=first, read_opt=bounds)
        rows = cast(Iterator[tuple[bytes, bytes]], found)
        while True:
            # Not `translated`, which costs as much as the row.
            try:
                row = next(rows, None)
            except Exception as error:
                raise StoreUnavailable(f"{self._path}: {error}") from error
            if row is None:
                return
            yield row
