"""Erases a namespace on the real log, and says on it who asked."""

from __future__ import annotations

from collections.abc import Callable

from cachemind.adapters.clock import SystemClock
from cachemind.agents.erasure import Erasure as Erasure
from cachemind.agents.erasure import erase
from cachemind.types import Namespace
from cachemind_services.bootstrap.log import identify
from cachemind_services.bootstrap.operator_log import OperatorLog
from cachemind_services.bootstrap.operator_log import who_asks as who_asks
from cachemind_services.bootstrap.payloads import open_data_keys
from cachemind_services.settings import Settings


def _pass(_: str) -> None:
    """Go on."""


def erase_namespace(
    settings: Settings,
    namespace: Namespace,
    reason: str,
    failpoint: Callable[[str], None] = _pass,
) -> Erasure:
    """Return what was done; see `agents.erasure`. Safe to repeat.

    Raises: `KeyRefused` where the namespace has no data keys, `KeyUnavailable`,
    `InvalidSetting`, `LogUnavailable`, `LogRejected`, `TopicMisconfigured`.
    """
    store = open_data_keys(settings)
    identify(settings)
    with OperatorLog(settings, namespace) as log:
        return erase(
            store, namespace, log.append, SystemClock().now_ns, reason, failpoint
        )
