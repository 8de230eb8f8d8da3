"""Why a call to the cache failed, for programs: by type, status and code."""

from __future__ import annotations

from cachemind.errors import CacheError


class CallFailed(CacheError):
    """A call was not answered as asked.

    `status` is HTTP's, 0 where there was no answer. `code` is one word where there is
    any; `field` names the part of the request that it is about, or is empty.
    """

    def __init__(
        self, message: str, *, status: int = 0, code: str = "", field: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.field = field


class NotValid(CallFailed):
    """The request is wrong, or too large; the same again is wrong again."""


class NotAuthenticated(CallFailed):
    """There is no credential, or it is none (401)."""


class NotAllowed(CallFailed):
    """The credential lacks a right, which the message names (403)."""


class NotFound(CallFailed):
    """What the call is about is not there (404; of a version that never was, 422)."""


class Conflict(CallFailed):
    """The namespace is not as the caller expected: another head (409)."""


class PastTheHorizon(CallFailed):
    """The history that the call needs was given up (410)."""


class NotOffered(CallFailed):
    """This installation does not do that, as its settings are (501)."""


class TooMany(CallFailed):
    """More than this credential may ask at once (429). Units: `retry_after_s`."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 429,
        code: str = "",
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(message, status=status, code=code)
        self.retry_after_s = retry_after_s


class Unavailable(CallFailed):
    """Nobody answered in time, or the cache, its log or upstream is away.

    What was asked for may have been done all the same, unless `sent` is False.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        code: str = "",
        sent: bool = True,
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(message, status=status, code=code)
        self.sent = sent
        self.retry_after_s = retry_after_s


class NoCache(CallFailed):
    """What answered is not CacheMind, or of a version that says other things."""


class StreamCut(CallFailed):
    """A stream ended before its end, or held an error of upstream's."""
