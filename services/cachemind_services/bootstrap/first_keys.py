"""The first start in audit mode: keys for development where there are none."""

from __future__ import annotations

from cachemind.errors import InvalidSetting
from cachemind_services.bootstrap.audit_keys import ensure_keys
from cachemind_services.bootstrap.pinned import pinned_path
from cachemind_services.settings import Settings


def make_first_keys(settings: Settings) -> str | None:
    """Make keys where none are pinned; return what to tell the operator.

    Keys for production are made on purpose, by `cachemind audit keys init`.
    Raises: `InvalidSetting` where that was not done; else as `ensure_keys`.
    """
    path = pinned_path(settings)
    if path.exists():
        return None
    if settings.production:
        raise InvalidSetting(
            str(path), "is not there; `cachemind audit keys init` makes keys and it"
        )
    pinned = ensure_keys(settings)
    return (
        f"made development keys in {settings.keys_dir} for the log {pinned.log_id}; "
        f"auditors pin {path}"
    )
