"""Asks the cache over Kafka, with confluent-kafka alone.

    python complete.py BROKERS NAMESPACE QUESTION [ROLE]

With a ROLE it asks by the namespace's grant of it. The bytes are those of
schemas/README.md, by hand; an Avro library does as well.
"""

import json
import sys
import time
import uuid

from confluent_kafka import Consumer, Producer

COMMANDS = bytes.fromhex("c301f4892ebe806feffa")  # single object, commands 0.3.0
COMPLETE, ANSWERED, NONE = 2, 2, b"\0"
LONGEST_WAIT_S = 60
OUTCOMES = ("?", "hit_exact", "hit_semantic", "hit_chunk", "miss", "bypass")


def number(value: int) -> bytes:
    """Return a number as Avro writes it: zigzag, seven bits a byte."""
    rest, written = value << 1 if value >= 0 else (-value << 1) - 1, bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*written, rest])


def text(value: bytes) -> bytes:
    """Return bytes, or a string in UTF-8, with their length."""
    return number(len(value)) + value


class Reply:
    """Reads the fields of a reply, one after the other."""

    def __init__(self, record: bytes) -> None:
        self.record, self.at = record, 10  # after the schema's fingerprint

    def fixed(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        self.at += size
        return self.record[self.at - size : self.at]

    def number(self) -> int:
        """Return the next number: also an enum's symbol, or a union's branch."""
        value, shift = 0, 0
        while True:
            (byte,) = self.fixed(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def text(self) -> bytes:
        """Return the next string, or bytes."""
        return self.fixed(self.number())


def main(brokers: str, namespace: str, question: str, role: str = "") -> int:
    """Send one command, print how it ended and what the answer is."""
    grant = f".{namespace}.{role}" if role else ""
    group = f"cachemind.client{grant}:" if role else ""  # all that a grant lets it use
    # Sent again with the same id, it is answered so again and done once.
    request = uuid.uuid4()
    correlation = str(request).encode()
    messages = [{"role": "user", "content": question}]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    command = (COMMANDS, request.bytes, text(namespace.encode()), number(COMPLETE))
    fields = (text(body), text(b""), text(b""), NONE, NONE)  # the last are controls
    answers = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": f"{group}{request}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    answers.subscribe([f"cachemind.replies{grant}"])
    producer = Producer({"bootstrap.servers": brokers, "partitioner": "murmur2_random"})
    producer.produce(
        f"cachemind.requests{grant}",
        b"".join((*command, *fields)),
        namespace,
        headers={
            "reply-to": f"cachemind.replies{grant}".encode(),
            "correlation-id": correlation,
        },
    )
    producer.flush()
    until = time.monotonic() + LONGEST_WAIT_S
    while (answer := answers.poll(1.0)) is None or answer.key() != correlation:
        if time.monotonic() > until:
            sys.exit("no answer came; cachemind dlq list may say why")
    answers.close()
    print(shown(Reply(answer.value() or b"")))
    return 0


def shown(reply: Reply) -> str:
    """Return outcome and answer, or the problem."""
    reply.fixed(16)  # request_id
    reply.text()  # namespace
    reply.fixed(16)  # trace_id
    if reply.number():  # lsn
        reply.number()
        reply.number()
    if reply.number() != ANSWERED:
        reply.number()  # a Problem: its code
        return f"problem {reply.text().decode()} {reply.text().decode()}"
    outcome = OUTCOMES[reply.number()]
    reply.text()  # reason
    reply.fixed(32 * reply.number())  # key
    reply.fixed(8 * reply.number())  # similarity
    reply.number()  # status
    reply.fixed(1)  # stored
    return f"{outcome} {reply.text().decode()}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
