"""One object on the token of an HSM, found again after the token was lost.

Source: PKCS #11 Cryptographic Token Interface Base Specification 2.40, OASIS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Final, Generic, TypeVar

import pkcs11
from pkcs11 import Attribute, ObjectClass, Session, Token

from cachemind.core.pkcs11_uri import Pkcs11Uri
from cachemind.errors import KeyRefused, KeyUnavailable

Found = TypeVar("Found")
Answer = TypeVar("Answer")

# The binding initialises a library for one thread at a time (C_Initialize without
# arguments, section 5.4), and a login counts for the whole process (section 5.6).
_ONE_AT_A_TIME: Final = RLock()

_PIN_REFUSED: Final = (
    pkcs11.PinIncorrect,
    pkcs11.PinInvalid,
    pkcs11.PinLenRange,
    pkcs11.PinLocked,
    pkcs11.PinExpired,
    pkcs11.UserPinNotInitialized,
)
_REFUSED: Final = (
    pkcs11.FunctionNotSupported,
    pkcs11.KeySizeRange,
    pkcs11.KeyTypeInconsistent,
    pkcs11.MechanismInvalid,
    pkcs11.MechanismParamInvalid,
    pkcs11.MultipleObjectsReturned,
    pkcs11.NoSuchKey,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAccess:
    """How to reach a token: the library, and what gives its PIN when it is needed."""

    module: Path
    pin: Callable[[], str]


class Pkcs11Object(Generic[Found]):
    """What `find` returns on a logged-in session, and uses of it.

    Opens lazily. Where a use fails, the session is opened again, and then the
    library is started again, before the failure is the caller's. A PIN that was
    refused is never tried twice: three times lock most tokens.
    """

    def __init__(
        self,
        uri: Pkcs11Uri,
        access: TokenAccess,
        find: Callable[[Session], Found],
    ) -> None:
        self._uri = uri
        self._access = access
        self._find = find
        self._shown = f"pkcs11:{uri.token or uri.serial}/{uri.label or _hex(uri)}"
        self._session: Session | None = None
        self._found: Found | None = None
        self._refusal: str | None = None

    @property
    def shown(self) -> str:
        """Return how an error names it."""
        return self._shown

    def use(self, work: Callable[[Found], Answer]) -> Answer:
        """Return what `work` returns, of whatever session. Any thread may ask.

        Raises: `KeyRefused`, `KeyUnavailable`.
        """
        with _ONE_AT_A_TIME:
            for restart in (self._keep, self._leave, self._start_again):
                try:
                    restart()
                    return work(self._open())
                except _REFUSED as error:
                    raise KeyRefused(self._shown, _words(error)) from error
                except pkcs11.PKCS11Error as error:
                    last = error
            self._leave()
            raise KeyUnavailable(self._shown, _words(last)) from last

    def close(self) -> None:
        """Leave the session; a later use is refused."""
        with _ONE_AT_A_TIME:
            self._leave()
            self._refusal = "is closed"

    def _open(self) -> Found:
        if self._refusal is not None:
            raise KeyRefused(self._shown, self._refusal)
        if self._session is None or self._found is None:
            self._session = self._log_in(self._token())
            self._found = self._find(self._session)
        return self._found

    def _token(self) -> Token:
        library = pkcs11.lib(str(self._access.module))
        tokens = [slot.get_token() for slot in library.get_slots(token_present=True)]
        fitting = [token for token in tokens if _fits(self._uri, token)]
        if len(fitting) > 1:
            raise KeyRefused(self._shown, f"{len(fitting)} tokens have this name")
        if not fitting:
            raise pkcs11.TokenNotPresent
        return fitting[0]

    def _log_in(self, token: Token) -> Session:
        try:
            return token.open(user_pin=self._access.pin())
        except pkcs11.UserAlreadyLoggedIn:
            # By another key of this process.
            return token.open()
        except _PIN_REFUSED as error:
            self._refusal = f"the token refused the PIN: {_words(error)}"
            raise KeyRefused(self._shown, self._refusal) from error

    def _keep(self) -> None:
        """Use the session there is."""

    def _leave(self) -> None:
        session, self._session, self._found = self._session, None, None
        if session is None:
            return
        try:
            session.close()
        except pkcs11.PKCS11Error:
            # It is gone already: the token was pulled or the library started again.
            return

    def _start_again(self) -> None:
        # What a library says of its slots may be what it saw when it started. Other
        # keys of this process lose their sessions, and come back the same way.
        self._leave()
        library = pkcs11.lib(str(self._access.module))
        library.reinitialize()


def find_one(
    session: Session, uri: Pkcs11Uri, object_class: ObjectClass
) -> pkcs11.Object:
    """Return the one object of a URI, which is refused where there are more or none."""
    wanted: dict[Attribute, object] = {Attribute.CLASS: object_class}
    if uri.label:
        wanted[Attribute.LABEL] = uri.label
    if uri.object_id is not None:
        wanted[Attribute.ID] = uri.object_id
    found = list(session.get_objects(wanted))
    kind = object_class.name.lower().replace("_", " ")
    if not found:
        raise pkcs11.NoSuchKey(f"the token has no such {kind}")
    if len(found) > 1:
        raise pkcs11.MultipleObjectsReturned(f"{len(found)} of kind {kind}")
    return found[0]


def load_module(module: Path) -> None:
    """Start the library. Raises: `KeyRefused` where it is none or does not start."""
    try:
        with _ONE_AT_A_TIME:
            pkcs11.lib(str(module))
    except pkcs11.PKCS11Error as error:
        raise KeyRefused(str(module), _words(error)) from error


def _fits(uri: Pkcs11Uri, token: Token) -> bool:
    pairs = (
        (uri.token, token.label),
        (uri.serial, token.serial.decode("ascii", "replace")),
        (uri.manufacturer, token.manufacturer_id),
        (uri.model, token.model),
    )
    return all(not wanted or wanted == found.strip() for wanted, found in pairs)


def _hex(uri: Pkcs11Uri) -> str:
    return (uri.object_id or b"").hex()


def _words(error: pkcs11.PKCS11Error) -> str:
    """Return the error's name, and the library's words where it has any."""
    return ": ".join(filter(None, (type(error).__name__, str(error))))
