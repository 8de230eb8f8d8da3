"""The events of one writer: numbered, with ids of their own."""

from __future__ import annotations

from collections.abc import Callable

from cachemind.core.identifiers import RANDOM_BYTES, uuid7
from cachemind.core.operation import hash_of
from cachemind.events import Body, Envelope
from cachemind.types import (
    FIRST_TIMELINE,
    Namespace,
    Principal,
    Timeline,
    TraceId,
    WriterId,
)


class Writing:
    """Puts bodies into envelopes. `random` gives as many bytes as it is asked for."""

    def __init__(
        self, writer: WriterId, principal: Principal, random: Callable[[int], bytes]
    ) -> None:
        self._writer = writer
        self._principal = principal
        self._random = random
        self._seq = 0

    def event(
        self,
        namespace: Namespace,
        body: Body,
        trace: TraceId,
        now_ns: int,
        timeline: Timeline = FIRST_TIMELINE,
    ) -> Envelope:
        """Return the writer's next event, decided on `timeline`.

        Units: `now_ns` since the Unix epoch (UTC).
        """
        self._seq += 1
        return Envelope(
            event_id=uuid7(now_ns, self._random(RANDOM_BYTES)),
            namespace=namespace,
            trace_id=trace,
            principal=self._principal,
            occurred_at_ns=now_ns,
            writer=self._writer,
            writer_seq=self._seq,
            timeline=timeline,
            op_hash=hash_of(body, now_ns),
            body=body,
        )
