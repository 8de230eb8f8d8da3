"""Whose tokens count, by a file that the operator writes."""

from __future__ import annotations

import tomllib
from pathlib import Path

from cachemind.core.credentials import TokenVerifier
from cachemind.core.oidc import Issuer, parse_issuer
from cachemind.errors import InvalidEvent, InvalidSetting


def open_tokens(path: Path | None) -> TokenVerifier | None:
    """Return what verifies the issuer's tokens, None without a file.

    Asks the issuer nothing yet. Raises: `InvalidSetting` naming file and member.
    """
    if path is None:
        return None
    issuer = read_issuer(path)
    # Imported here: who has no issuer must not pay for it.
    from cachemind.adapters.jwks import JwksVerifier

    return JwksVerifier(issuer)


def read_issuer(path: Path) -> Issuer:
    """Return the issuer that a file describes.

    Raises: `InvalidSetting` naming file and member.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        return parse_issuer(document)
    except OSError as error:
        raise InvalidSetting(str(path), f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(str(path), f"is not TOML: {error}") from error
    except InvalidEvent as error:
        raise InvalidSetting(f"{path}: {error.field}", error.problem) from error
