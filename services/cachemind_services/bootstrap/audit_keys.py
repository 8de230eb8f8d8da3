"""Makes, exchanges and revokes the keys of audit mode, and tells the log of it."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from cachemind.adapters.file_sync import write_whole
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.key_file import create_key_file, new_key_file
from cachemind.adapters.private_file import create_private
from cachemind.agents.cuts_log import CutsLog
from cachemind.agents.key_watch import CUTS_PARTITION
from cachemind.core.audit_means import Pinned, RootKey
from cachemind.core.key_validity import Tenure
from cachemind.core.pinned_keys import pinned_text
from cachemind.errors import (
    InvalidEvent,
    InvalidRequest,
    InvalidSetting,
    KeyRefused,
    KeyUnavailable,
)
from cachemind.ports import SigningKey
from cachemind.receipts import KeyChange, KeyId, KeyRole, LogId, check_key_id
from cachemind_services.bootstrap.key_events import KeyEventLog, Wanted
from cachemind_services.bootstrap.keys import (
    BESIDE,
    ROOT_FILE,
    HeldByProcess,
    key_uris,
    open_root_key,
    open_signing_key,
    passphrase,
)
from cachemind_services.bootstrap.log import identify, kafka_of, topics_of
from cachemind_services.bootstrap.pinned import pinned_path, read_pinned
from cachemind_services.settings import Settings

SIGNING: Final = (KeyRole.RECEIPT, KeyRole.LOG)
TAKEN_IN_S: Final = 60.0
OVERLAP_S: Final = 10.0
"""For every signer to hear of a new key before the old one may sign no more."""

_PASSPHRASE_BYTES: Final = 32
_NO_NAME: Final = re.compile(r"[\s+]|[^\x21-\x7e]")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKey:
    """A key as the log of cuts tells of it, and whether this host can sign with it."""

    key_id: KeyId
    role: KeyRole
    state: str
    added: int | None
    retired: int | None
    last_good_cut: int | None
    held: bool


def ensure_keys(settings: Settings, log_id: str = "") -> Pinned:
    """Return what is pinned; makes keys, tells the log, and pins, where nothing is yet.

    Whatever ends it in between: called again, it goes on with the keys that are there.
    Raises: `InvalidSetting` where the log has other keys already; `InvalidRequest`
    where it cannot have that name, or has another; `KeyRefused`, `KeyUnavailable`,
    `LogUnavailable`, `LogRejected`, `TopicMisconfigured`.
    """
    path = pinned_path(settings)
    if log_id:
        _checked(log_id)
    if path.exists():
        return _still_named(read_pinned(path), log_id)
    identity = identify(settings)
    _demand_new_log(settings)
    wal_id = identity.topic_ids[topics_of(settings).wal.name]
    derived = f"cachemind/{identity.cluster_id}/{wal_id}"
    # Before the log hears of a key: what is told cannot be taken back.
    path.parent.mkdir(parents=True, exist_ok=True)
    _make_missing(settings)
    with closing(open_root_key(settings)) as root, _held(settings) as held:
        pinned = Pinned(
            log_id=LogId(log_id or derived),
            roots=(RootKey(key_id=root.key_id, public_key=root.public_key),),
        )
        with KeyEventLog(settings, pinned) as events:
            for role in SIGNING:
                for key in held.all(role):
                    events.append(_added(role, key, "first key"), root, key)
    # Last: where it is, all of the above has happened.
    write_whole(path, pinned_text(pinned))
    return pinned


def known_keys(settings: Settings) -> Sequence[KnownKey]:
    """Return every key, the root keys first.

    Raises: `AuditBroken`, `LogUnavailable`, `InvalidSetting`.
    """
    pinned = read_pinned(pinned_path(settings))
    with KeyEventLog(settings, pinned) as events, _held(settings) as held:
        tenures = events.read().keys.tenures()
        roots = [
            KnownKey(
                key_id=root.key_id,
                role=KeyRole.ROOT,
                state="pinned",
                added=None,
                retired=None,
                last_good_cut=None,
                held=bool(key_uris(KeyRole.ROOT, settings)),
            )
            for root in pinned.roots
        ]
        return [*roots, *map(partial(_known, held), tenures)]


def rotate_key(
    settings: Settings,
    role: KeyRole,
    uri: str,
    reason: str,
    overlap_s: float = OVERLAP_S,
) -> KnownKey:
    """Return the key that signs from now on; those that signed before are retired.

    Without a URI it is made in the folder; one with a URI must have been named to the
    signers by the settings when they started. Signers go on throughout: they change
    keys when the new one is on the log of cuts, and only then is the old one retired.
    Raises: `KeyUnavailable` where that does not happen in time: the old key goes on.
    """
    pinned = read_pinned(pinned_path(settings))
    with (
        closing(_pinned_root(settings, pinned)) as root,
        _held(settings) as held,
        KeyEventLog(settings, pinned) as events,
    ):
        before = [one.key_id for one in events.read().keys.signers(role)]
        with closing(_new_key(settings, role, uri)) as new:
            if held.find(role, new.key_id) is None:
                # Signers hold the same: once the old key is retired they would stop.
                raise InvalidRequest(
                    "--key", f"must be among those that the settings name for {role}s"
                )
            events.append(_added(role, new, reason), root, new)
            _await(events, partial(_signs, new.key_id), new.key_id)
            time.sleep(overlap_s)
            for key_id in before:
                _retire(events, role, key_id, reason, root, held)
            tenures = {one.key_id: one for one in events.read().keys.tenures()}
            return _known(held, tenures[new.key_id])


def revoke_key(
    settings: Settings, key_id: str, last_good_cut: int, reason: str
) -> KeyId:
    """Take back a key: what it signed beyond a cut counts for nothing.

    Needs the root key alone. Raises: `InvalidRequest` where no such key was added;
    `KeyUnavailable` where no cutter takes it in.
    """
    pinned = read_pinned(pinned_path(settings))
    with (
        closing(_pinned_root(settings, pinned)) as root,
        KeyEventLog(settings, pinned) as events,
    ):
        tenure = _tenure(events.read(), key_id)
        wanted = Wanted(
            change=KeyChange.REVOKE,
            role=tenure.role,
            public_key=tenure.public_key,
            reason=reason,
            last_good_cut=last_good_cut,
        )
        events.append(wanted, root, None)
        _await(events, partial(_revoked, tenure.key_id), tenure.key_id)
    return tenure.key_id


def retire_key(settings: Settings, key_id: str, reason: str) -> KeyId:
    """End a key's time; it must be held, since it signs its own end.

    Raises: `InvalidRequest` where no such key was added or it is not held.
    """
    pinned = read_pinned(pinned_path(settings))
    with (
        closing(_pinned_root(settings, pinned)) as root,
        _held(settings) as held,
        KeyEventLog(settings, pinned) as events,
    ):
        tenure = _tenure(events.read(), key_id)
        _retire(events, tenure.role, tenure.key_id, reason, root, held)
        return tenure.key_id


# ---- making -------------------------------------------------------------------------


def _make_missing(settings: Settings) -> None:
    folder = settings.keys_dir
    in_files = not all(
        (settings.audit_root_key, settings.audit_log_keys, settings.audit_receipt_keys)
    )
    named = settings.audit_passphrase or settings.audit_passphrase_file
    if in_files and not named and not (folder / BESIDE).exists():
        words = secrets.token_hex(_PASSPHRASE_BYTES).encode()
        create_private(folder / BESIDE, words + b"\n")
    if not key_uris(KeyRole.ROOT, settings):
        create_key_file(folder / ROOT_FILE, passphrase(settings)).close()
    for role in SIGNING:
        if not key_uris(role, settings):
            new_key_file(folder, role, passphrase(settings)).close()


def _pinned_root(settings: Settings, pinned: Pinned) -> SigningKey:
    root = open_root_key(settings)
    if root.key_id not in {one.key_id for one in pinned.roots}:
        root.close()
        raise KeyRefused(root.key_id, "is not the root key that keys.json pins")
    return root


def _new_key(settings: Settings, role: KeyRole, uri: str) -> SigningKey:
    if uri:
        return open_signing_key(uri, settings)
    if getattr(settings, f"audit_{role}_keys"):
        raise InvalidRequest(
            "--key", f"is needed: the settings name the {role} keys, not the folder"
        )
    return new_key_file(settings.keys_dir, role, passphrase(settings))


def _demand_new_log(settings: Settings) -> None:
    topic = topics_of(settings).audit_cuts.name
    with closing(KafkaReader(kafka_of(settings), topic)) as reader:
        _, end = reader.bounds(CUTS_PARTITION)
    if end > 0:
        raise InvalidSetting(
            str(pinned_path(settings)),
            "is missing, and the log has keys already: copy it, and the keys, from "
            "the host that made them",
        )


def _checked(name: str) -> None:
    """Refuse what a log cannot be called: its checkpoints begin with the name."""
    if _NO_NAME.search(name):
        raise InvalidRequest("--log-id", "must be printable ASCII without spaces and +")


def _still_named(pinned: Pinned, log_id: str) -> Pinned:
    if log_id and log_id != pinned.log_id:
        raise InvalidRequest("--log-id", f"the log is named {pinned.log_id} already")
    return pinned


# ---- telling ------------------------------------------------------------------------


def _added(role: KeyRole, key: SigningKey, reason: str) -> Wanted:
    return Wanted(
        change=KeyChange.ADD, role=role, public_key=key.public_key, reason=reason
    )


def _retire(
    events: KeyEventLog,
    role: KeyRole,
    key_id: KeyId,
    reason: str,
    root: SigningKey,
    held: HeldByProcess,
) -> None:
    own = held.find(role, key_id)
    if own is None:
        raise InvalidRequest(
            "key", f"{key_id} is not held here and cannot sign its own end; revoke it"
        )
    wanted = Wanted(
        change=KeyChange.RETIRE, role=role, public_key=own.public_key, reason=reason
    )
    events.append(wanted, root, own)
    _await(events, partial(_retired, key_id), key_id)


def _await(
    events: KeyEventLog, reached: Callable[[CutsLog], bool], key_id: KeyId
) -> None:
    if not events.wait(reached, TAKEN_IN_S):
        raise KeyUnavailable(
            key_id,
            f"the event about it is on the log, and no signer took it in for "
            f"{TAKEN_IN_S:.0f} s; it counts once one runs",
        )


def _signs(key_id: KeyId, cuts: CutsLog) -> bool:
    return cuts.keys.public_key(key_id) is not None


def _retired(key_id: KeyId, cuts: CutsLog) -> bool:
    return any(
        one.key_id == key_id and one.retired is not None for one in cuts.keys.tenures()
    )


def _revoked(key_id: KeyId, cuts: CutsLog) -> bool:
    return any(
        one.key_id == key_id and one.last_good_cut is not None
        for one in cuts.keys.tenures()
    )


# ---- looking ------------------------------------------------------------------------


@contextmanager
def _held(settings: Settings) -> Iterator[HeldByProcess]:
    with closing(HeldByProcess(settings)) as held:
        yield held


def _tenure(cuts: CutsLog, key_id: str) -> Tenure:
    try:
        wanted = check_key_id(key_id)
    except InvalidEvent as error:
        raise InvalidRequest("key", error.problem) from error
    for tenure in cuts.keys.tenures():
        if tenure.key_id == wanted:
            return tenure
    raise InvalidRequest("key", f"{key_id} was never added to this log")


def _known(held: HeldByProcess, tenure: Tenure) -> KnownKey:
    state = "signs"
    if tenure.retired is not None:
        state = "retired"
    if tenure.last_good_cut is not None:
        state = "revoked"
    return KnownKey(
        key_id=tenure.key_id,
        role=tenure.role,
        state=state,
        added=tenure.added,
        retired=tenure.retired,
        last_good_cut=tenure.last_good_cut,
        held=held.find(tenure.role, tenure.key_id) is not None,
    )
