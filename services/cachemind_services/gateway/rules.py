"""A namespace's policy as it is now: the settings' own until the log has one."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from cachemind.core.access import is_reserved
from cachemind.core.cache_control import NO_CONTROLS, Effective, tighten
from cachemind.core.policy import Policy
from cachemind.core.policy_text import parse_policy
from cachemind.errors import InvalidEvent
from cachemind.types import Namespace

_LOG: Final = logging.getLogger("cachemind.gateway")


class Rules:
    """Follows the policy on the log; everybody asks here, each time anew."""

    def __init__(self, namespace: Namespace, default: Policy) -> None:
        self._namespace = namespace
        self._default = default
        self._text = ""
        # The policy of such a namespace is the key book; it has no entries.
        self._reserved = is_reserved(namespace)
        self.policy = default
        self.effective: Effective = tighten(default, NO_CONTROLS)
        """What holds for a request without controls of its own."""

        self.problem: str | None = None

    def follow(self, text: str) -> None:
        """Take in the policy as the fold shows it, "" for none.

        One that cannot be read switches the cache off: what it forbids is not known.
        """
        if text == self._text or self._reserved:
            return
        self._text = text
        try:
            policy, self.problem = parse_policy(text, self._default), None
        except InvalidEvent as error:
            policy = replace(self._default, enabled=False)
            self.problem = f"the policy of {self._namespace} cannot be read: {error}"
            _LOG.error("%s; its requests bypass the cache", self.problem)
        self.policy = policy
        self.effective = tighten(policy, NO_CONTROLS)
