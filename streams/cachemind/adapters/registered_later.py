"""A codec whose schema is registered in the background, until the registry answers.

For who must never wait for it: a gateway's event loop.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from cachemind.codec import Codec
from cachemind.errors import LogError, LogUnavailable
from cachemind.events import Envelope

RETRY_S: Final = 1.0
_LOG: Final = logging.getLogger("cachemind.registry")


class RegisteredLater:
    """Encodes once the registry has told the schema's id; asks until it does."""

    def __init__(self, codec: Codec, retry_s: float = RETRY_S) -> None:
        """`codec` may be prepared already; then nothing is asked."""
        self._codec = codec
        self._retry_s = retry_s
        if not codec.prepared:
            # Ends with the process: what it waits for may never answer.
            threading.Thread(
                target=self._ask, name="schema-registry", daemon=True
            ).start()

    def encode(self, event: Envelope) -> bytes:
        """Return the record of `event`; never waits.

        Raises: `LogUnavailable` while the registry has not answered, `InvalidEvent`.
        """
        if not self._codec.prepared:
            raise LogUnavailable("the schema registry has not answered yet")
        return self._codec.encode(event)

    def _ask(self) -> None:
        said = ""
        while True:
            try:
                self._codec.prepare()
            except LogError as error:
                if str(error) != said:
                    said = str(error)
                    _LOG.warning("no record can be written yet: %s", said)
                time.sleep(self._retry_s)
            else:
                _LOG.warning("the schema registry answers: records can be written")
                return
