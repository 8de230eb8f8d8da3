"""Sealed payloads: what is sealed opens again, and nothing else does."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemind.adapters.aead import AesGcm
from cachemind.core import entry_bytes
from cachemind.core.data_key import (
    DataKey,
    decode_data_key,
    encode_data_key,
    key_id_of,
    next_generation,
    wrapping_context,
)
from cachemind.core.fold import apply
from cachemind.core.payload_cipher import PayloadCipher
from cachemind.core.payloads import PLAIN, SealedPayloads, inspected
from cachemind.core.sealed_payload import (
    HEAD_BYTES,
    MAGIC,
    SALT_BYTES,
    Kind,
    Payload,
    bound,
    bound_before,
    is_sealed,
    subkey,
    unpack_payload,
    unpack_response,
)
from cachemind.core.state import NamespaceState
from cachemind.errors import PayloadUnreadable, UndecodableRecord
from cachemind.types import ExactKey, Namespace
from tests.contracts.data_keys_contract import data_key
from tests.fold_cases import NoEntries
from tests.unit.test_gateway_parts import SHOP, at, envelope, stored

SECRET = bytes(range(32))
ID = key_id_of(1, SECRET)
OTHER_ID = key_id_of(2, SECRET[::-1])
KEY, OTHER = ExactKey(b"\1" * 32), ExactKey(b"\2" * 32)
PAYLOAD = Payload(prompt="why?", parameters='{"n":1}', response=b'{"a":1}')
VECTOR = b"\0\x3c" * 384


def cipher(
    namespace: Namespace = SHOP,
    secret: bytes = SECRET,
    key_id: str = ID,
    most: int = 2**32,
) -> PayloadCipher:
    made = PayloadCipher(namespace, AesGcm, os.urandom, most)
    made.put(key_id, secret)
    made.seal_with(key_id)
    return made


payloads = st.builds(
    Payload,
    prompt=st.none() | st.text(),
    parameters=st.text(),
    response=st.binary(),
)


@given(payload=payloads, key=st.binary(min_size=32, max_size=32).map(ExactKey))
def test_what_was_sealed_opens_again(payload: Payload, key: ExactKey) -> None:
    raw = cipher().seal(key, payload)
    assert is_sealed(raw)
    assert cipher().open(key, raw) == payload
    assert cipher().open_response(key, raw) == payload.response


@given(raw=st.binary(max_size=40))
def test_any_bytes_under_the_key_are_a_payload_or_refused(raw: bytes) -> None:
    for read in (unpack_payload, unpack_response):
        with contextlib.suppress(PayloadUnreadable):
            read(raw)


@given(vector=st.binary(max_size=4096).filter(lambda raw: len(raw) % 2 == 0))
def test_a_sealed_vector_opens_again_and_is_even(vector: bytes) -> None:
    raw = cipher().seal_vector(KEY, vector)
    assert len(raw) % 2 == 0
    assert cipher().open_vector(KEY, raw) == vector


def test_every_changed_byte_is_refused() -> None:
    sealing = cipher()
    raw = sealing.seal(KEY, PAYLOAD)
    for place in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[place] ^= 1 << bit
            with pytest.raises(PayloadUnreadable):
                sealing.open(KEY, bytes(changed))


def test_every_cut_is_refused() -> None:
    raw = cipher().seal(KEY, PAYLOAD)
    for kept in range(len(raw)):
        with pytest.raises(PayloadUnreadable):
            cipher().open(KEY, raw[:kept])


@pytest.mark.parametrize(
    ("opener", "key", "reason"),
    [
        pytest.param(cipher(), OTHER, "payload-damaged", id="another-exact-key"),
        pytest.param(cipher(Namespace("bank")), KEY, "payload-damaged", id="namespace"),
        pytest.param(cipher(secret=bytes(32)), KEY, "payload-damaged", id="data-key"),
        pytest.param(cipher(key_id=OTHER_ID), KEY, "payload-no-key", id="no-such-key"),
    ],
)
def test_another_place_or_key_is_refused(
    opener: PayloadCipher, key: ExactKey, reason: str
) -> None:
    with pytest.raises(PayloadUnreadable) as found:
        opener.open(key, cipher().seal(KEY, PAYLOAD))
    assert found.value.reason == reason


def test_a_key_under_another_id_does_not_open() -> None:
    raw = cipher().seal(KEY, PAYLOAD)
    renamed = raw.replace(ID.encode(), OTHER_ID.encode())
    with pytest.raises(PayloadUnreadable, match="damaged"):
        cipher(key_id=OTHER_ID).open(KEY, renamed)


def test_a_payload_is_no_vector_and_a_vector_no_payload() -> None:
    sealing = cipher()
    with pytest.raises(PayloadUnreadable):
        sealing.open_vector(KEY, sealing.seal(KEY, PAYLOAD))
    with pytest.raises(PayloadUnreadable):
        sealing.open(KEY, sealing.seal_vector(KEY, VECTOR))


def test_what_is_in_the_clear_is_told_apart() -> None:
    with pytest.raises(PayloadUnreadable) as found:
        cipher().open(KEY, b'{"choices":[]}')
    assert found.value.reason == "payload-plain"


def test_two_processes_never_share_a_subkey_and_no_nonce_repeats() -> None:
    one, two = cipher(), cipher()
    heads = [
        each.seal(KEY, PAYLOAD)[:HEAD_BYTES] for each in (one, two) for _ in range(99)
    ]
    assert len(set(heads)) == len(heads)
    salts = {head[len(MAGIC) + 28 :][:SALT_BYTES] for head in heads}
    assert len(salts) == 2
    assert len({subkey(SECRET, salt) for salt in salts}) == 2


def test_a_salt_is_renewed_before_too_many_nonces_were_drawn() -> None:
    sealing = cipher(most=3)
    raws = [sealing.seal(KEY, PAYLOAD) for _ in range(7)]
    salts = [raw[len(MAGIC) + 28 :][:SALT_BYTES] for raw in raws]
    assert [salts.count(salt) for salt in dict.fromkeys(salts)] == [3, 3, 1]
    assert all(sealing.open(KEY, raw) == PAYLOAD for raw in raws)


def test_a_key_that_is_not_kept_neither_opens_nor_seals() -> None:
    sealing = cipher()
    raw = sealing.seal(KEY, PAYLOAD)
    assert sealing.open(KEY, raw) == PAYLOAD
    assert not sealing.keep({ID})
    assert sealing.keep(set())
    assert sealing.current is None
    for refused in (
        lambda: sealing.open(KEY, raw),
        lambda: sealing.seal(KEY, PAYLOAD),
        lambda: sealing.seal_with(ID),
    ):
        with pytest.raises(PayloadUnreadable, match="no-key"):
            refused()


def test_older_keys_open_what_the_newer_one_does_not_seal() -> None:
    sealing = cipher()
    raw = sealing.seal(KEY, PAYLOAD)
    sealing.put(OTHER_ID, SECRET[::-1])
    sealing.seal_with(OTHER_ID)
    assert sealing.current == OTHER_ID
    assert sealing.open(KEY, raw) == PAYLOAD
    assert OTHER_ID.encode() in sealing.seal(KEY, PAYLOAD)
    assert not sealing.keep({ID, OTHER_ID})


def test_the_part_made_once_and_the_key_are_the_whole() -> None:
    for kind in Kind:
        before = bound_before(kind, SHOP, ID.encode())
        assert before + KEY == bound(kind, SHOP, ID.encode(), KEY)


# ---- events and entries ----------------------------------------------------------


def test_a_sealed_event_holds_nothing_of_what_was_said() -> None:
    plain = replace(
        stored(1),
        prompt="marker-prompt",
        parameters='{"user":"marker-user"}',
        response=b'{"x":"marker-answer"}',
        embedding=VECTOR,
        semantic_key="marker-semantic",
    )
    sealed = SealedPayloads(cipher()).stored(plain)
    assert "marker" not in repr(sealed)
    assert sealed.prompt is None
    assert sealed.embedding is not None
    assert VECTOR not in sealed.embedding
    assert sealed.response_hash == sha256(sealed.response).digest()
    assert sealed.request_hash != plain.request_hash
    again = SealedPayloads(cipher()).stored(plain)
    assert again.request_hash == sealed.request_hash
    assert again.response != sealed.response


def test_a_folded_entry_opens_to_what_was_stored() -> None:
    sealing = SealedPayloads(cipher())
    plain = replace(stored(1), prompt="why?", embedding=VECTOR)
    event = envelope(sealing.stored(plain))
    step = apply(NamespaceState(namespace=SHOP), NoEntries(), event, at(5))
    [entry] = step.entries.values()
    assert entry is not None
    opened = sealing.entry(entry)
    assert (opened.prompt, opened.embedding) == ("why?", VECTOR)
    assert opened.response == plain.response
    assert opened.parameters == plain.parameters
    assert opened.response_hash == entry.response_hash
    served = sealing.served(
        plain.exact_key, entry_bytes.serving(entry_bytes.encode(entry))
    )
    assert served.response == plain.response
    assert served.response_hash == entry.response_hash
    assert sealing.vector(plain.exact_key, entry.embedding or b"") == VECTOR
    for refused in (PLAIN.entry, SealedPayloads(cipher(key_id=OTHER_ID)).entry):
        with pytest.raises(PayloadUnreadable):
            refused(entry)
    shown = inspected(PLAIN, entry)
    assert ID.encode() in shown.response
    assert b"payload-sealed" in shown.response
    assert shown.embedding is None
    assert inspected(sealing, entry) == opened


# ---- data keys as they are kept -----------------------------------------------------


@given(
    generation=st.integers(1, 10**8 - 1),
    secret=st.binary(min_size=32, max_size=32),
    wrapped=st.binary(max_size=200),
    times=st.tuples(st.integers(0, 2**63), st.integers(0, 2**63)),
)
def test_a_data_key_comes_back_from_its_object(
    generation: int, secret: bytes, wrapped: bytes, times: tuple[int, int]
) -> None:
    key = DataKey(
        namespace=SHOP,
        generation=generation,
        key_id=key_id_of(generation, secret),
        wrapper_id="file:00",
        wrapped=wrapped,
        created_at_ns=times[0],
        destroyed_at_ns=times[1],
    )
    assert decode_data_key(encode_data_key(key)) == key
    assert len(key.key_id) == 27


@given(raw=st.binary() | st.text().map(str.encode))
def test_what_is_no_data_key_is_refused(raw: bytes) -> None:
    with pytest.raises(UndecodableRecord):
        decode_data_key(raw)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 2),
        ("generation", "1"),
        ("wrapped", "§"),
        ("wrapped", None),
        ("namespace", "UPPER"),
        ("created_at_ns", True),
    ],
)
def test_a_wrong_field_is_refused(field: str, value: object) -> None:
    told = json.loads(encode_data_key(data_key()))
    with pytest.raises(UndecodableRecord):
        decode_data_key(json.dumps(told | {field: value}).encode())


def test_a_destroyed_key_keeps_its_place_and_nothing_else() -> None:
    stone = data_key(4).destroyed(9)
    assert (stone.lives, stone.wrapped, stone.destroyed_at_ns) == (False, b"", 9)
    assert data_key(4).lives
    assert next_generation([stone]) == 5
    assert next_generation([]) == 1


def test_a_wrapping_context_names_namespace_and_key() -> None:
    found = {
        wrapping_context(namespace, key_id)
        for namespace in (SHOP, Namespace("bank"))
        for key_id in (ID, OTHER_ID)
    }
    assert len(found) == 4
    with pytest.raises(ValueError, match="digits"):
        key_id_of(10**8, SECRET)
