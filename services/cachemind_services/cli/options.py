"""Settings as command-line flags."""

from __future__ import annotations

import argparse
import os
from dataclasses import fields
from pathlib import Path
from typing import Final

from cachemind_services.settings import BOOTSTRAP, Settings, load

SERVICE: Final = tuple(item.name for item in fields(Settings) if item.name != "kafka")
"""Every setting: for the commands that run a process."""

CLIENT: Final = ("host", "port", "uds")
LOG: Final = ("data_dir", "topic_prefix", "namespace", "schema_registry_url")


def add_settings(parser: argparse.ArgumentParser, names: tuple[str, ...]) -> None:
    """Add `--config`, `--bootstrap-servers` and one flag for each of `names`."""
    group = parser.add_argument_group("settings", "each also by CACHEMIND_<NAME>")
    group.add_argument("--config", type=Path, metavar="FILE", help="TOML file")
    if names != CLIENT:
        group.add_argument(
            "--bootstrap-servers",
            dest=BOOTSTRAP,
            metavar="HOST:PORT,...",
            help="Kafka to use; without it one is started here",
        )
    described = {item.name: item.metadata.get("doc", "") for item in fields(Settings)}
    for name in names:
        group.add_argument(
            "--" + name.replace("_", "-"),
            dest=name,
            metavar="VALUE",
            help=described[name] or None,
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
    return load(os.environ, config=arguments.config, flags=given)
