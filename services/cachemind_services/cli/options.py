"""Settings as command-line flags."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, cast

from cachemind_services.settings import (
    BOOTSTRAP,
    Settings,
    described,
    is_flag,
    is_secret,
    load,
)

SERVICE: Final = tuple(
    item.name
    for item in fields(Settings)
    if item.name != "kafka" and not is_secret(item.name)
)
"""Every setting that is no secret: for the commands that run a process."""

_BROKER: Final = {"java", "broker_port", "broker_heap_mb"}
_FOLD: Final = {
    "group_id",
    "watchdog_s",
    "checkpoint_events",
    "checkpoint_interval_s",
    "rollback_write_bytes",
}
_COLLECT: Final = {name for name in SERVICE if name.startswith("collect")}
_SHARED: Final = {
    "data_dir",
    "namespace",
    "topic_prefix",
    "partitions",
    "production",
    "schema_registry_url",
    "rollback_strategy",
    "snapshot_url",
    "host_silence_h",
    "secret_file",
    "log_level",
}
_KEYS: Final = {
    "audit_root_key",
    "audit_log_keys",
    "audit_receipt_keys",
    "audit_passphrase_file",
    "pkcs11_module",
    "pkcs11_pin_file",
}
_SINK: Final = {name for name in SERVICE if name.startswith("sink_")}
_SIGNING: Final = _KEYS - {"pkcs11_module", "pkcs11_pin_file"}
GATEWAY: Final = tuple(
    name
    for name in SERVICE
    if name not in _BROKER | _FOLD | _SIGNING | _SINK | _COLLECT
)
MATERIALIZER: Final = tuple(name for name in SERVICE if name in _FOLD | _SHARED)
AUDIT: Final = tuple(
    name
    for name in SERVICE
    if name
    in {"audit_mode", "log_dir", "receipts_kept", "watchdog_s"} | _SHARED | _KEYS
)
"""For the processes that sign receipts and keep them."""

AUDIT_LOG: Final = ("data_dir", "topic_prefix", "partitions", "production")
"""For who only reads the audit topics."""

SINK: Final = tuple(
    name
    for name in SERVICE
    if name in {"log_dir", "log_level", "watchdog_s", *AUDIT_LOG} | _SINK
)
"""For the process that seals receipts in files."""

COLLECTOR: Final = tuple(
    name
    for name in SERVICE
    if name
    in {"schema_registry_url", "log_level", "watchdog_s", *AUDIT_LOG}
    | (_COLLECT - {"collect"})
)
"""For the process that evicts what has expired."""

CLIENT: Final = ("host", "port", "uds")
LOG: Final = ("data_dir", "topic_prefix", "namespace", "schema_registry_url")


def add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    help_text: str,
    run: Callable[[argparse.Namespace], int],
    *,
    flags: tuple[str, ...],
) -> argparse.ArgumentParser:
    """Add an action that prints text or `--json`, with one flag for each setting."""
    parser = actions.add_parser(name, help=help_text)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_settings(parser, flags)
    parser.set_defaults(run=run)
    return parser


def add_settings(parser: argparse.ArgumentParser, names: tuple[str, ...]) -> None:
    """Add `--config`, `--bootstrap-servers` and one flag for each of `names`."""
    group = parser.add_argument_group("settings", "each also by CACHEMIND_<NAME>")
    group.add_argument("--config", type=Path, metavar="FILE", help="TOML file")
    if names != CLIENT:
        group.add_argument(
            "--bootstrap-servers",
            dest=BOOTSTRAP,
            metavar="HOST:PORT,...",
            help="Kafka to use; without it the one that is embedded here",
        )
    for name in names:
        written, purpose = described(name)
        # A flag that is given without a value is on.
        alone = {"nargs": "?", "const": "true"} if is_flag(name) else {}
        group.add_argument(
            "--" + name.replace("_", "-"),
            dest=name,
            metavar=written,
            help=purpose.replace("%", "%%"),
            **cast(Any, alone),
        )


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Return the settings that environment, file and flags give together.

    Raises: `InvalidSetting`.
    """
    known = {*SERVICE, BOOTSTRAP}
    given = {
        name: value
        for name, value in vars(arguments).items()
        if name in known and isinstance(value, str)
    }
    settings = load(os.environ, config=arguments.config, flags=given)
    logging.getLogger().setLevel(settings.log_level.upper())
    return settings
