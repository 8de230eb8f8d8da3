"""The id of a request, by which it is done once however often it is sent."""

from __future__ import annotations

import secrets
import time

from cachemind.core.identifiers import RANDOM_BYTES, uuid7
from cachemind.types import EventId


def new_request_id() -> EventId:
    """Return an id that no other request has."""
    return uuid7(time.time_ns(), secrets.token_bytes(RANDOM_BYTES))
