"""A SoftHSM token for the tests: one a test session, found by SOFTHSM2_CONF."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Final

import pkcs11
import pytest
from pkcs11 import Attribute, KeyType, MechanismFlag
from pkcs11.util.ec import encode_named_curve_parameters

from cachemind.adapters.pkcs11_object import TokenAccess

MODULES: Final = (
    Path("/usr/lib/softhsm/libsofthsm2.so"),
    Path("/usr/lib64/softhsm/libsofthsm2.so"),
    Path("/usr/local/lib/softhsm/libsofthsm2.so"),
)
LABEL: Final = "cachemind"
PIN: Final = "1234-abcd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token in a folder, and keys on it."""

    module: Path
    folder: Path
    configuration: Path

    def access(self, pin: Callable[[], str] = lambda: PIN) -> TokenAccess:
        return TokenAccess(module=self.module, pin=pin)

    def uri(self, label: str) -> str:
        return f"pkcs11:token={LABEL};object={label}"

    def make_pair(
        self,
        label: str,
        *,
        curve: str = "secp256r1",
        extractable: bool = False,
        public: bool = True,
    ) -> None:
        with self._open() as session:
            parameters = session.create_domain_parameters(
                KeyType.EC,
                {Attribute.EC_PARAMS: encode_named_curve_parameters(curve)},
                local=True,
            )
            halves = parameters.generate_keypair(
                store=True,
                label=label,
                id=label.encode(),
                private_template={Attribute.EXTRACTABLE: extractable},
            )
            if not public:
                halves[0].destroy()

    def make_secret(
        self, label: str, *, bits: int = 256, extractable: bool = False
    ) -> None:
        with self._open() as session:
            session.generate_key(
                KeyType.AES,
                bits,
                store=True,
                label=label,
                id=label.encode(),
                capabilities=MechanismFlag.ENCRYPT | MechanismFlag.DECRYPT,
                template={Attribute.EXTRACTABLE: extractable},
            )

    def remove(self, label: str) -> None:
        with self._open() as session:
            for found in list(session.get_objects({Attribute.LABEL: label})):
                found.destroy()

    def restart(self) -> None:
        """End every session of this process, as when the token was pulled."""
        # The library reads it when it starts.
        os.environ["SOFTHSM2_CONF"] = str(self.configuration)
        pkcs11.lib(str(self.module)).reinitialize()

    def _open(self) -> pkcs11.Session:
        library = pkcs11.lib(str(self.module))
        token = library.get_token(token_label=LABEL)
        try:
            return token.open(rw=True, user_pin=PIN)
        except pkcs11.UserAlreadyLoggedIn:
            return token.open(rw=True)


def make_token(folder: Path) -> Token:
    """Return a new token; skips the test where SoftHSM is not installed."""
    module = next((path for path in MODULES if path.exists()), None)
    if module is None or which("softhsm2-util") is None:
        pytest.skip("SoftHSM2 is not installed (Debian package softhsm2)")
    tokens = folder / "tokens"
    tokens.mkdir()
    configuration = folder / "softhsm2.conf"
    configuration.write_text(
        f"directories.tokendir = {tokens}\nobjectstore.backend = file\n"
    )
    subprocess.run(
        [
            *("softhsm2-util", "--init-token", "--free", "--label", LABEL),
            *("--so-pin", "so-pin-1234", "--pin", PIN),
        ],
        check=True,
        capture_output=True,
        env={**os.environ, "SOFTHSM2_CONF": str(configuration)},
        timeout=60,
    )
    token = Token(module=module, folder=tokens, configuration=configuration)
    token.restart()
    return token
