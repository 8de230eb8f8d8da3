"""Names of keys in AWS KMS: `aws-kms:ARN`, and behind it `?endpoint=URL` at will."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from cachemind.errors import InvalidSetting

SCHEME: Final = "aws-kms:"
_HERE: Final = "AWS KMS URI"
_ENDPOINT: Final = "endpoint="

# Not an alias: it may be moved to another key, and then nothing fits any more.
_ARN: Final = re.compile(
    r"arn:aws[a-z-]*:kms:(?P<region>[a-z0-9-]+):[0-9]{12}:key/[A-Za-z0-9-]+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KmsUri:
    """A key, its region, and where to ask; an empty endpoint is AWS's own."""

    arn: str
    region: str
    endpoint: str


def parse_kms_uri(uri: str) -> KmsUri:
    """Return what a URI says. Raises: `InvalidSetting`."""
    if not uri.startswith(SCHEME):
        raise InvalidSetting(_HERE, f"must begin with {SCHEME}")
    arn, question, query = uri.removeprefix(SCHEME).partition("?")
    found = _ARN.fullmatch(arn)
    if found is None:
        raise InvalidSetting(
            _HERE, "must hold a key's ARN, arn:aws:kms:REGION:ACCOUNT:key/ID"
        )
    if question and not query.startswith(_ENDPOINT):
        raise InvalidSetting(_HERE, "may have endpoint=URL behind the ?, nothing else")
    endpoint = unquote(query.removeprefix(_ENDPOINT))
    if question and not _is_url(endpoint):
        raise InvalidSetting(_HERE, "endpoint must be a URL with http or https")
    return KmsUri(arn=arn, region=found["region"], endpoint=endpoint)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
