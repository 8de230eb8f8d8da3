"""A signer on real adapters in a process of its own, with keys of fixed names.

Which keys it holds is read from the folder anew each time, so a test can add one.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import signal
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cachemind.adapters.memory_keys import MemoryKey
from cachemind.core.audit_means import Pinned, RootKey
from cachemind.ports import SigningKey
from cachemind.receipts import KeyId, KeyRole, LogId
from cachemind_services.bootstrap.checkpoints import dying_at
from cachemind_services.bootstrap.pinned import means_of, verifier_of
from cachemind_services.bootstrap.signer import SignerKeys, sign
from cachemind_services.settings import Settings
from cachemind_services.settings import load as read_settings

LOG_ID = LogId("test.example/audit")
ROOT = MemoryKey("root")
PINNED = Pinned(
    log_id=LOG_ID, roots=(RootKey(key_id=ROOT.key_id, public_key=ROOT.public_key),)
)
MEANS = means_of(PINNED)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Which log is signed, and the folder of its keys' names."""

    bootstrap_servers: str
    prefix: str
    partitions: int
    keys: str
    data_dir: str
    failpoint: str = ""
    patience_s: int = 60

    def settings(self) -> Settings:
        """Return the settings of the process."""
        flags = {
            "bootstrap.servers": self.bootstrap_servers,
            "topic_prefix": self.prefix,
            "partitions": str(self.partitions),
            "data_dir": self.data_dir,
            "watchdog_s": str(self.patience_s),
        }
        return read_settings({}, flags=flags)


@lru_cache
def key_named(name: str) -> MemoryKey:
    """Return the key of a name."""
    return MemoryKey(name)


class NamedKeys:
    """Holds the keys whose names are in a folder's files, one a line, by role."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, role: KeyRole, key_id: KeyId) -> SigningKey | None:
        """Return the key of that id."""
        for key in self._keys(role):
            if key.key_id == key_id:
                return key
        return None

    def first(self, role: KeyRole) -> SigningKey | None:
        """Return the first key."""
        return next(iter(self._keys(role)), None)

    def _keys(self, role: KeyRole) -> list[MemoryKey]:
        path = self._folder / role.value
        names = path.read_text().split() if path.exists() else []
        return [key_named(name) for name in names]


def signer_at(described: str) -> int:
    """Sign at the place that is described as JSON, by the fields of `Place`."""
    faulthandler.register(signal.SIGUSR1)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s"
    )
    place = Place(**json.loads(described))
    keys = SignerKeys(
        log_id=LOG_ID,
        held=NamedKeys(Path(place.keys)),
        verify=verifier_of(PINNED),
    )
    return asyncio.run(sign(place.settings(), keys, dying_at(place.failpoint)))
