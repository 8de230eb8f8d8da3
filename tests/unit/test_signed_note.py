"""Notes are read and checked as C2SP says, whoever signed them."""

from __future__ import annotations

import base64
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from cachemind.adapters.key_verify import OpensslCheck
from cachemind.core.checkpoint_note import Checkpoint
from cachemind.core.signature_check import SignatureCheck
from cachemind.core.signed_note import (
    MAX_NOTE_CHARS,
    MAX_SIGNATURES,
    NoteKey,
    NoteKeyKind,
    NoteSignature,
    SignedNote,
    cosignature,
    cosigned_message,
    ecdsa_signature,
    ed25519_signature,
    verdict_on,
)
from cachemind.errors import InvalidEvent, MalformedNote
from cachemind.types import Sha256

CHECK: Final[SignatureCheck] = OpensslCheck()

# Go's golang.org/x/mod/sumdb/note, its documentation.
NEUMANN: Final = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
NEUMANN_SEED: Final = base64.b64decode("gQoUAtUUbI2E8kQzMPVAgOv5juF9nHT2JS/F1ccoMXM=")
NEUMANN_NOTE: Final = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXg"
    "KvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
# Sigstore's Rekor and Google's Pixel log: ECDSA.
REKOR: Final = (
    "rekor.sigstore.dev+c0d23d6a+AjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABNhtmPtrWm3U1eQX"
    "BogSMdGvXwBcK5AW5i0hrZLOC96l+smGNM7nwZ4QvFK/4sueRoVj//QP22Ni4Qt9DPfkWLc="
)
REKOR_NOTE: Final = (
    "Rekor\n"
    "798034\n"
    "f+7CoKgXKE/tNys9TTXcr/ad6U/K3xvznmzew9y6SP0=\n"
    "\n"
    "— rekor.sigstore.dev wNI9ajBEAiARInWIWyCdyG27CO6LPnPekyw20qO0YJfoaPaowGp/XgIgc+q"
    "EHS3+GKVClgqq20uDLet7MCoTURUCRdxwWBHHufk=\n"
)
PIXEL: Final = (
    "pixel6_transparency_log+91c16e30+AjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABN+4x0Jk1yT"
    "wvLFI9A4NDdGZcX0aiWVdWM5XJVy0M4VWD3AvyW5Q6Hs9A0mcDkpUoYgn+KKPNzFC0H3nN3q6JQ8="
)
PIXEL_NOTE: Final = (
    "DEFAULT\n"
    "10\n"
    "bsWRucJU5xJPHb5eBdOm6+DM+VelCZBuvtI3sHERJ9Y=\n"
    "\n"
    "— pixel6_transparency_log kcFuMDBFAiEAhqMAP8P6qf6QxtUJhzMhbN+MbZ9dwfUHzGQJmffJHt"
    "oCIGD0cNe47dHWBoPwYdgBCepB06/+g5O1FmYjXl06owL4\n"
)
# A certificate transparency log's checkpoint as it was served: the log's Ed25519 key,
# another type of signature, and four witnesses.
ARCHE: Final = (
    "arche2025h1.staging.ct.transparency.dev+ba2f06c0"
    "+AU0vHmlGCS/PdN8b2OaGmKprLI8HKM+dJ472xgFYh15f"
)
REMORA: Final = "remora.n621.de+da77ade7+BOvN63jn/bLvkieywe8R6UYAtVtNbZpXh34x7onlmtw2"
GARDEN: Final = (
    "transparency.dev/DEV:witness-little-garden+d8042a87"
    "+BCtusOxINQNUTN5Oj8HObRkh2yHf/MwYaGX4CPdiVEPM"
)
ARCHE_NOTE: Final = """\
arche2025h1.staging.ct.transparency.dev
1432088532
U7WM79jrzyhGZ5/GUBTpM7NzwdyfFx61t3RovgcC4Ro=

— arche2025h1.staging.ct.transparency.dev \
zTM8sQAAAZ5W0WdjBAMARjBEAiBjW5IQf9pvsYLfQFX6hoGREPMHbdQ3urbllzalApkptQIgIpwtEroe\
W2BXaHAI4kJXFbon5Ch9MNL5zRNZ55lvGt0=
— arche2025h1.staging.ct.transparency.dev \
ui8GwCF1+kWqZrxGdhj4aX3gcw7XUlXQQabg/27lefwhUkzbC3NygNI75MdhL1bfTW9g8Ei59RA23oHP\
7Ry1k3ZFWwQ=
— transparency.dev/DEV:witness-little-garden \
2AQqhwAAAABqEiEgzgFIqqhbUoDwjMWE6UP8nd8/KYTzwZ2rhIgcqoXHAwVkjZr4AscylP3v7sEodkRA\
ErumC2q44vdgJY096st5BQ==
— witness1.smartit.nu/witness1 \
pIyCDwAAAABqEiEghIp82KWebrw7/oHQwlTAm3g2RKS4+eebl8eO0WH+/iEcxZ75W3u5hNI7TOQtmJbq\
mNWVuE0tgh0XwzdZsDsUAQ==
— remora.n621.de \
2net5wAAAABqEiEgPlfF3V06o0Y+fHM+J5J9s27wgxxcOVSpZ/2g/KSiXCg9DEZI+aVCIobWX9sXTynk\
5XeU/zZ0WBxtqB0DrAWfBw==
— witness.stagemole.eu \
Z/euoAAAAABqEiEgw0i+7g2ENfDAWHmtRzCfKTHSDwYDJA2NmKeGi9Y8FtEyOUvVr+AJmIY/2TUFucgK\
i7lI7cUiOvKFYe/TmN9DAg==
"""
COSIGNED_AT_S: Final = 1_779_573_024
NOTES: Final = {
    "ed25519": (NEUMANN_NOTE, NEUMANN),
    "ecdsa": (REKOR_NOTE, REKOR),
    "ecdsa-of-another-log": (PIXEL_NOTE, PIXEL),
    "ed25519-among-others": (ARCHE_NOTE, ARCHE),
    "witness": (ARCHE_NOTE, REMORA),
    "another-witness": (ARCHE_NOTE, GARDEN),
}
each_note = pytest.mark.parametrize(
    ("note", "verifier"), NOTES.values(), ids=list(NOTES)
)


@each_note
def test_notes_of_other_logs_hold(note: str, verifier: str) -> None:
    found = verdict_on(SignedNote.parse(note), [NoteKey.parse(verifier)], CHECK)
    assert [str(one.key) for one in found.holding] == [verifier]
    assert found.wrong == ()
    assert found.counts


@each_note
def test_what_was_read_is_written_the_same(note: str, verifier: str) -> None:
    assert str(SignedNote.parse(note)) == note
    assert str(NoteKey.parse(verifier)) == verifier


@each_note
def test_a_changed_text_no_longer_counts(note: str, verifier: str) -> None:
    parsed = SignedNote.parse(note)
    key = NoteKey.parse(verifier)
    for at in range(len(parsed.text) - 1):
        char = "x" if parsed.text[at] != "x" else "y"
        text = parsed.text[:at] + char + parsed.text[at + 1 :]
        changed = SignedNote(text=text, signatures=parsed.signatures)
        found = verdict_on(changed, [key], CHECK)
        assert found.wrong == (key,)
        assert not found.counts


@each_note
def test_a_changed_signature_no_longer_counts(note: str, verifier: str) -> None:
    parsed = SignedNote.parse(note)
    key = NoteKey.parse(verifier)
    (line,) = [one for one in parsed.signatures if one.key_hash == key.key_hash]
    for at in range(len(line.value)):
        value = bytearray(line.value)
        value[at] ^= 1
        wrong = NoteSignature(
            name=line.name, key_hash=line.key_hash, value=bytes(value)
        )
        found = verdict_on(
            SignedNote(text=parsed.text, signatures=(wrong,)), [key], CHECK
        )
        assert found.wrong == (key,)


def test_a_witness_tells_when_it_signed() -> None:
    keys = [NoteKey.parse(one) for one in (ARCHE, REMORA, GARDEN)]
    found = verdict_on(SignedNote.parse(ARCHE_NOTE), keys, CHECK)
    assert [one.timestamp_s for one in found.holding] == [
        None,
        COSIGNED_AT_S,
        COSIGNED_AT_S,
    ]


def test_a_note_of_unknown_keys_does_not_count() -> None:
    found = verdict_on(SignedNote.parse(ARCHE_NOTE), [NoteKey.parse(REKOR)], CHECK)
    assert (found.holding, found.wrong, found.counts) == ((), (), False)


def test_one_wrong_signature_spoils_a_note_that_another_key_signed() -> None:
    parsed = SignedNote.parse(ARCHE_NOTE)
    bad = NoteSignature(
        name="remora.n621.de",
        key_hash=NoteKey.parse(REMORA).key_hash,
        value=bytes(72),
    )
    spoiled = parsed.signed_by(bad)
    keys = [NoteKey.parse(ARCHE), NoteKey.parse(REMORA)]
    found = verdict_on(spoiled, keys, CHECK)
    assert len(found.holding) == 2
    assert found.wrong == (keys[1],)
    assert not found.counts
    assert verdict_on(spoiled, keys[:1], CHECK).counts


def test_a_key_that_signed_twice_counts_once() -> None:
    parsed = SignedNote.parse(NEUMANN_NOTE)
    twice = parsed.signed_by(*parsed.signatures)
    found = verdict_on(twice, [NoteKey.parse(NEUMANN)], CHECK)
    assert len(found.holding) == 1


def test_the_same_name_with_another_hash_is_an_unknown_key() -> None:
    parsed = SignedNote.parse(NEUMANN_NOTE)
    (line,) = parsed.signatures
    other = NoteSignature(name=line.name, key_hash=b"\0\0\0\0", value=b"\0")
    found = verdict_on(parsed.signed_by(other), [NoteKey.parse(NEUMANN)], CHECK)
    assert found.counts


def test_ed25519_notes_are_signed_as_the_known_one() -> None:
    private = Ed25519PrivateKey.from_private_bytes(NEUMANN_SEED)
    public = private.public_key().public_bytes(
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    )
    key = NoteKey(name="PeterNeumann", kind=NoteKeyKind.ED25519, public_key=public)
    text = SignedNote.parse(NEUMANN_NOTE).text
    line = ed25519_signature(key, private.sign(text.encode()))

    assert str(key) == NEUMANN
    assert str(SignedNote(text=text, signatures=(line,))) == NEUMANN_NOTE


def test_a_cosignature_holds_at_its_time_alone() -> None:
    private = Ed25519PrivateKey.from_private_bytes(NEUMANN_SEED)
    public = NoteKey.parse(NEUMANN).public_key
    key = NoteKey(name="w", kind=NoteKeyKind.COSIGNATURE, public_key=public)
    note = SignedNote.parse(REKOR_NOTE)
    signed = private.sign(cosigned_message(note.text, 1_679_315_147))

    assert cosigned_message("a\n1\nb\n", 7) == b"cosignature/v1\ntime 7\na\n1\nb\n"
    held = note.signed_by(cosignature(key, 1_679_315_147, signed))
    assert verdict_on(held, [key], CHECK).holding[0].timestamp_s == 1_679_315_147
    moved = note.signed_by(cosignature(key, 1_679_315_148, signed))
    assert verdict_on(moved, [key], CHECK).wrong == (key,)


def test_a_cosignature_past_the_last_time_is_wrong() -> None:
    private = Ed25519PrivateKey.from_private_bytes(NEUMANN_SEED)
    public = NoteKey.parse(NEUMANN).public_key
    key = NoteKey(name="w", kind=NoteKeyKind.COSIGNATURE, public_key=public)
    note = SignedNote.parse(REKOR_NOTE)
    for time_s, holds in ((2**63 - 1, True), (2**63, False)):
        signed = private.sign(cosigned_message(note.text, time_s))
        held = note.signed_by(cosignature(key, time_s, signed))
        assert verdict_on(held, [key], CHECK).counts is holds


def test_a_raw_ecdsa_signature_becomes_the_known_line() -> None:
    note = SignedNote.parse(REKOR_NOTE)
    raw = bytes.fromhex(
        "112275885b209dc86dbb08ee8b3e73de932c36d2a3b46097e868f6a8c06a7f5e"
        "73ea841d2dfe18a542960aaadb4b832deb7b302a1351150245dc705811c7b9f9"
    )
    assert ecdsa_signature(NoteKey.parse(REKOR), raw) == note.signatures[0]
    with pytest.raises(InvalidEvent):
        ecdsa_signature(NoteKey.parse(REKOR), raw[:-1])


def test_a_key_of_another_kind_than_it_says_is_an_error() -> None:
    key = NoteKey.parse(NEUMANN)
    wrong = NoteKey(
        name="rekor.sigstore.dev", kind=NoteKeyKind.ECDSA, public_key=key.public_key
    )
    line = ecdsa_signature(wrong, bytes(31) + b"\1" + bytes(31) + b"\1")
    with pytest.raises(InvalidEvent, match="public_key"):
        verdict_on(SignedNote(text="a\n", signatures=(line,)), [wrong], CHECK)


LINE: Final = NEUMANN_NOTE.rpartition("\n\n")[2]


@pytest.mark.parametrize(
    "note",
    [
        pytest.param("", id="nothing"),
        pytest.param("text\n", id="no-signatures"),
        pytest.param("text\n\n", id="no-line"),
        pytest.param("\n" + LINE, id="no-text"),
        pytest.param("text" + LINE, id="no-blank-line"),
        pytest.param("text\n\n" + LINE[:-1], id="no-last-end"),
        pytest.param("text\n\n" + LINE + "\n", id="blank-line-at-the-end"),
        pytest.param("text\n\n" + LINE + "more\n", id="a-line-that-is-no-signature"),
        pytest.param("text\n\n" + LINE.replace("— ", "- "), id="another-dash"),
        pytest.param("text\n\n" + LINE.replace("— ", "—"), id="no-space"),
        pytest.param("text\n\n— name\n", id="no-signature-in-it"),
        pytest.param("text\n\n—  x08go/ZJ\n", id="no-name"),
        pytest.param("text\n\n— a+b x08go/ZJ\n", id="plus-in-the-name"),
        pytest.param("text\n\n— a\u00a0b x08go/ZJ\n", id="space-in-the-name"),
        pytest.param("text\n\n— a b x08go/ZJ\n", id="two-names"),
        pytest.param("text\n\n— a x08go/ZJ \n", id="space-at-the-end"),
        pytest.param("text\n\n— a x08go/Z*\n", id="no-base64"),
        pytest.param("text\n\n— a x08go/Z\n", id="base64-cut"),
        pytest.param("text\n\n— a x08go/ZJ=\n", id="base64-with-too-much"),
        pytest.param("text\n\n— a x08go/b=\n", id="base64-with-needless-bits"),
        pytest.param("text\n\n— a x08gow==\n", id="nothing-behind-the-hash"),
        pytest.param("text\n\n— a x08g\n", id="hash-cut"),
        pytest.param("te\rxt\n\n" + LINE, id="carriage-return"),
        pytest.param("te\0xt\n\n" + LINE, id="nul"),
        pytest.param("te\txt\n\n" + LINE, id="tab"),
        pytest.param("text\n\n" + LINE.replace("\n", "\r\n"), id="windows-line-ends"),
        pytest.param("te\ud800xt\n\n" + LINE, id="no-utf-8"),
        pytest.param("text\n\n— \ud800 x08go/ZJ\n", id="no-utf-8-in-the-name"),
        pytest.param("text\n\n" + LINE * (MAX_SIGNATURES + 1), id="too-many"),
        pytest.param("t" * MAX_NOTE_CHARS + "\n\n" + LINE, id="too-long"),
    ],
)
def test_what_is_no_note_is_refused(note: str) -> None:
    with pytest.raises(MalformedNote):
        SignedNote.parse(note)


@pytest.mark.parametrize(
    ("note", "text"),
    [
        pytest.param("a\n\nb\n\n" + LINE, "a\n\nb\n", id="blank-line-in-the-text"),
        pytest.param("\n\n" + LINE, "\n", id="empty-line-only"),
        pytest.param("— a x08go/ZJ\n\n" + LINE, "— a x08go/ZJ\n", id="looks-signed"),
        pytest.param("a\n\n" + LINE * MAX_SIGNATURES, "a\n", id="many"),
    ],
)
def test_a_text_ends_at_the_last_blank_line(note: str, text: str) -> None:
    assert SignedNote.parse(note).text == text


@given(st.text(alphabet="a\n —+=x08go/ZJ", max_size=60))
def test_any_text_is_a_note_as_it_was_written_or_refused(text: str) -> None:
    try:
        note = SignedNote.parse(text)
    except MalformedNote:
        return
    assert str(note) == text


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_signature_line_is_read_as_written_or_refused(
    name: str, value: str
) -> None:
    text = f"a\n\n— {name} {value}\n"
    try:
        assert str(SignedNote.parse(text)) == text
    except MalformedNote:
        return


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("", id="nothing"),
        pytest.param("bananas.sigstore.dev+12344556", id="two-parts"),
        pytest.param("rekor.sigstore.dev+12345678+THIS_IS_NOT_BASE64!", id="no-base64"),
        pytest.param("rekor.sigstore.dev+12345678+AwEB", id="unknown-kind"),
        pytest.param("rekor.sigstore.dev+12345678+", id="no-kind"),
        pytest.param(NEUMANN.replace("c74f20a3", "NOT_A_NUMBER"), id="no-hash"),
        pytest.param(NEUMANN.replace("c74f20a3", "C74F20A3"), id="hash-in-capitals"),
        pytest.param(NEUMANN.replace("c74f20a3", "00000000"), id="another-hash"),
        pytest.param(NEUMANN.replace("Peter", "Petra"), id="another-name"),
        pytest.param(NEUMANN.replace("+ARpc", "+BBpc"), id="another-kind"),
        pytest.param(NEUMANN[:-4], id="cut"),
        pytest.param(NEUMANN.replace("PeterNeumann", ""), id="no-name"),
        pytest.param(NEUMANN.replace("PeterNeumann", "Peter Neumann"), id="space"),
    ],
)
def test_what_is_no_verifier_key_is_refused(key: str) -> None:
    with pytest.raises(MalformedNote):
        NoteKey.parse(key)


def test_a_key_may_have_a_plus_in_its_base64() -> None:
    text = "TEST+7997405c+AQcC+FTVKf0jlTdHDY3rbevmnKxxPjigCXlVtGe6RIr6"
    assert str(NoteKey.parse(text)) == text


def test_a_key_that_is_no_ed25519_key_is_refused() -> None:
    public = NoteKey.parse(REKOR).public_key
    with pytest.raises(MalformedNote, match="Ed25519"):
        NoteKey(name="a", kind=NoteKeyKind.ED25519, public_key=public)


# ---- checkpoints --------------------------------------------------------------------

ROOT: Final = Sha256(base64.b64decode("CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I="))
SOFA: Final = (
    "example.com/behind-the-sofa\n"
    "20852163\n"
    "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
)


@pytest.mark.parametrize(
    ("text", "checkpoint"),
    [
        pytest.param(
            SOFA,
            Checkpoint(origin="example.com/behind-the-sofa", size=20852163, root=ROOT),
            id="the-example-of-the-specification",
        ),
        pytest.param(
            f"any origin + more\n0\n{base64.b64encode(ROOT).decode()}\nx\ny z\n",
            Checkpoint(
                origin="any origin + more", size=0, root=ROOT, extensions=("x", "y z")
            ),
            id="extensions",
        ),
        pytest.param(
            f"o\n9223372036854775807\n{base64.b64encode(ROOT).decode()}\n",
            Checkpoint(origin="o", size=2**63 - 1, root=ROOT),
            id="largest",
        ),
    ],
)
def test_a_checkpoint_is_read_and_written(text: str, checkpoint: Checkpoint) -> None:
    assert Checkpoint.parse(text) == checkpoint
    assert str(checkpoint) == text


@pytest.mark.parametrize("note", [REKOR_NOTE, PIXEL_NOTE, ARCHE_NOTE])
def test_checkpoints_of_other_logs_are_read(note: str) -> None:
    text = SignedNote.parse(note).text
    assert str(Checkpoint.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("\n", id="one-empty-line"),
        pytest.param(SOFA[:-1], id="no-last-end"),
        pytest.param(SOFA + "\n", id="empty-line-behind"),
        pytest.param(SOFA + "x", id="extension-cut"),
        pytest.param(SOFA + "\nx\n", id="empty-extension"),
        pytest.param("\n".join(SOFA.split("\n")[:2]) + "\n", id="no-root"),
        pytest.param("\n" + SOFA.partition("\n")[2], id="no-origin"),
        pytest.param(SOFA.replace("2085", "02085"), id="leading-zero"),
        pytest.param(SOFA.replace("20852163", "+1"), id="sign"),
        pytest.param(SOFA.replace("20852163", "-1"), id="below-zero"),
        pytest.param(SOFA.replace("20852163", " 1"), id="space"),
        pytest.param(SOFA.replace("20852163", "1_0"), id="underscore"),
        pytest.param(SOFA.replace("20852163", "0x1"), id="hexadecimal"),
        pytest.param(SOFA.replace("20852163", "१"), id="another-script"),
        pytest.param(SOFA.replace("20852163", ""), id="no-size"),
        pytest.param(SOFA.replace("20852163", "9223372036854775808"), id="too-large"),
        pytest.param(SOFA.replace("20852163", "9" * 5000), id="far-too-large"),
        pytest.param(SOFA.replace("q2I=", "q2J="), id="needless-bits"),
        pytest.param(SOFA.replace("q2I=", ""), id="root-too-short"),
        pytest.param(SOFA.replace("CsUY", "CsUYCsUY"), id="root-too-long"),
        pytest.param(SOFA.replace("CsUY", "Cs-_"), id="another-alphabet"),
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(MalformedNote):
        Checkpoint.parse(text)


@given(st.text(alphabet="a\n0189=AB", max_size=60))
def test_any_text_is_a_checkpoint_as_it_was_written_or_refused(text: str) -> None:
    try:
        checkpoint = Checkpoint.parse(text)
    except MalformedNote:
        return
    assert str(checkpoint) == text


@pytest.mark.parametrize(
    ("origin", "size", "root", "extensions"),
    [
        pytest.param("", 1, ROOT, (), id="no-origin"),
        pytest.param("a\nb", 1, ROOT, (), id="origin-of-two-lines"),
        pytest.param("a", -1, ROOT, (), id="size-below-zero"),
        pytest.param("a", 2**63, ROOT, (), id="size-too-large"),
        pytest.param("a", 1, ROOT[:31], (), id="root-too-short"),
        pytest.param("a", 1, ROOT, ("",), id="empty-extension"),
    ],
)
def test_no_checkpoint_is_made_that_could_not_be_read(
    origin: str, size: int, root: Sha256, extensions: tuple[str, ...]
) -> None:
    with pytest.raises(MalformedNote):
        Checkpoint(origin=origin, size=size, root=root, extensions=extensions)
