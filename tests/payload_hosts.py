"""A process that has a namespace's data keys at hand, on memory adapters."""

from __future__ import annotations

import os

from cachemind.adapters.aead import AesGcm
from cachemind.adapters.clock import SystemClock
from cachemind.adapters.memory_data_keys import MemoryDataKeys
from cachemind.adapters.memory_keys import MemoryWrapper
from cachemind.agents.payload_keys import PayloadKeys
from cachemind.core.payload_cipher import PayloadCipher
from cachemind.core.sealed_payload import Payload
from cachemind.errors import PayloadUnreadable
from cachemind.types import ExactKey, Namespace

SHOP = Namespace("shop")
KEY = ExactKey(b"\1" * 32)
PAYLOAD = Payload(prompt="why?", parameters="{}", response=b"{}")


class KeyHost:
    """One process with the namespace's keys."""

    def __init__(
        self,
        store: MemoryDataKeys,
        wrapper: str = "one",
        *,
        makes: bool = True,
        namespace: Namespace = SHOP,
    ) -> None:
        self.cipher = PayloadCipher(namespace, AesGcm, os.urandom)
        self.wrapper = MemoryWrapper(wrapper)
        self.keys = PayloadKeys(
            namespace,
            store,
            self.wrapper,
            self.cipher,
            SystemClock(),
            os.urandom,
            makes=makes,
        )

    def seal(self) -> bytes:
        return self.cipher.seal(KEY, PAYLOAD)

    def opens(self, raw: bytes) -> bool:
        try:
            return self.cipher.open(KEY, raw) == PAYLOAD
        except PayloadUnreadable:
            return False
