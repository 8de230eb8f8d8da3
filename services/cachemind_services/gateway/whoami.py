"""`GET /v1/cachemind/whoami`: who asks, and what that caller may do."""

from __future__ import annotations

from cachemind.core.access import RIGHTS, Caller, Right
from cachemind.types import Namespace
from cachemind_services.gateway.http_io import Send, send_json


async def send_whoami(caller: Caller, namespace: Namespace | None, send: Send) -> None:
    """Answer with the grant; no secret is in it.

    `rights` are those in `namespace`, where the request is in one.
    """
    rights = RIGHTS[caller.role]
    if namespace is not None:
        rights = frozenset(each for each in Right if caller.may(each, namespace))
    answer = {
        "principal": caller.principal,
        "role": caller.role,
        "namespace": namespace,
        "namespaces": sorted(caller.namespaces),
        "prefixes": caller.prefixes,
        "rights": sorted(rights),
    }
    await send_json(send, 200, answer)
