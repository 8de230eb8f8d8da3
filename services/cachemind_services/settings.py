"""All settings, read once: defaults, then a TOML file, then `CACHEMIND_*`, then flags.

The Kafka client takes any librdkafka property: `[kafka]` in the file, verbatim, or
`CACHEMIND_KAFKA_SASL_MECHANISM` for `sasl.mechanism`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, cast

from cachemind.errors import InvalidSetting
from cachemind_services.setting_values import (
    OneOf,
    flag,
    key_uri,
    namespace_name,
    one_of,
    path,
    ratio,
    text,
    url,
    whole,
)

PREFIX: Final = "CACHEMIND_"
KAFKA_PREFIX: Final = "CACHEMIND_KAFKA_"
CONFIG_VARIABLE: Final = "CACHEMIND_CONFIG"
BOOTSTRAP: Final = "bootstrap.servers"
VIEWS: Final = "views"
"""Folder in the data folder for what the readers of stores write down."""

_UNDERSCORED: Final = frozenset({"log_level"})
"""librdkafka properties whose own name has an underscore."""

STRICT: Final = {"wal_ack": "acked", "on_wal_failure": "refuse"}
"""What audit mode demands: an answer leaves once the log has it, or not at all."""

OFF: Final = False
ON: Final = True
TRUST: Final = "trust"


def _setting(parse: Callable[[str], object], default: object, doc: str) -> Any:
    return field(default=default, metadata={"parse": parse, "doc": doc})


def _secret(doc: str) -> Any:
    """Return a setting that no flag sets and nothing shows: `ps` shows flags."""
    return field(
        default="", repr=False, metadata={"parse": text, "doc": doc, "secret": True}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One process's settings. Durations and sizes carry their unit in the name."""

    upstream: str = _setting(
        url, "", "model server, for example http://127.0.0.1:11434"
    )
    host: str = _setting(text, "127.0.0.1", "address that the gateway binds")
    port: int = _setting(whole(0, 65535), 8080, "TCP port; 0 picks a free one")
    uds: Path | None = _setting(path, None, "Unix socket to listen on as well")
    workers: int = _setting(whole(1, 256), 1, "gateway processes")
    data_dir: Path = _setting(
        path, Path("~/.local/share/cachemind"), "stores, broker, secret"
    )
    namespace: str = _setting(namespace_name, "default", "namespace that is served")
    topic_prefix: str = _setting(text, "cachemind", "first part of topic names")
    partitions: int = _setting(whole(1, 1024), 4, "WAL partitions")
    production: bool = _setting(flag, OFF, "demand 3 replicas, 2 of them in sync")
    group_id: str = _setting(text, "", "materializer's group; default one per store")
    schema_registry_url: str = _setting(text, "", "Confluent wire format when set")
    wal_ack: str = _setting(one_of("acked", "async"), "acked", "when answers leave")
    on_wal_failure: str = _setting(
        one_of("bypass", "refuse"), "bypass", "what to do while Kafka is away"
    )
    wal_timeout_ms: int = _setting(
        whole(50, 120_000), 3_000, "longest wait for an acknowledgement"
    )
    encoder: str = _setting(
        one_of("onnx", "torch", "off"), "onnx", "off: exact hits only"
    )
    similarity_threshold: float = _setting(ratio, 0.92, "lowest cosine of a hit")
    embed_deadline_ms: int = _setting(
        whole(1, 60_000), 200, "longest wait for the encoder; past it: miss"
    )
    ttl_s: int = _setting(whole(1, 10**9), 86_400, "life of an entry by default")
    max_ttl_s: int = _setting(whole(1, 10**9), 604_800, "longest life of an entry")
    share_across_credentials: bool = _setting(
        flag, OFF, "let callers with different upstream keys share entries"
    )
    auth: bool = _setting(
        flag, OFF, "ask every caller for a key (`cachemind keys`) or an issuer's token"
    )
    shared_requests: str = _setting(
        one_of("refuse", TRUST),
        "refuse",
        "with auth: of who may write to the topic of requests that all share; "
        "trusted he may do everything (`cachemind grants` makes topics that say who "
        "asks)",
    )
    oidc_file: Path | None = _setting(
        path, None, "TOML file: the issuer whose tokens count, and what they grant"
    )
    insecure: bool = _setting(
        flag, OFF, "bind another address than loopback though nobody is asked for a key"
    )
    access_key: str = _secret("of a gateway, which commands present (`cachemind keys`)")
    upstream_credentials: Path | None = _setting(
        path, None, "TOML file of mode 0600: header fields for upstream by namespace"
    )
    key_requests_per_s: int = _setting(
        whole(0, 10**6), 0, "of each key on this host; above it 429; 0: no limit"
    )
    key_burst: int = _setting(
        whole(1, 10**6), 100, "requests of a key at once, before the rate counts"
    )
    key_streams: int = _setting(
        whole(0, 10**6), 0, "open streams of each key on this host; 0: no limit"
    )
    admit_volatile: bool = _setting(
        flag, OFF, "admit answers to questions about now, today, the weather"
    )
    max_body_bytes: int = _setting(
        whole(1_024, 2**31), 16 * 2**20, "larger requests get 413"
    )
    max_cacheable_bytes: int = _setting(
        whole(1_024, 2**24), 2**20, "larger bodies pass through uncached"
    )
    upstream_connect_timeout_ms: int = _setting(
        whole(1, 600_000), 5_000, "longest wait for a connection to upstream"
    )
    upstream_first_byte_timeout_ms: int = _setting(
        whole(1, 3_600_000), 300_000, "longest wait for the head of its answer"
    )
    upstream_idle_timeout_ms: int = _setting(
        whole(1, 3_600_000), 120_000, "longest pause inside its answer"
    )
    secret_file: Path | None = _setting(
        path, None, "32 random bytes in hex, equal on all hosts; default one per data"
    )
    checkpoint_events: int = _setting(
        whole(1, 10**9), 10_000, "records of a partition per checkpoint"
    )
    checkpoint_interval_s: int = _setting(
        whole(1, 10**9), 300, "longest time between two checkpoints of new records"
    )
    host_silence_h: int = _setting(
        whole(1, 10**5),
        24,
        "hours after which what a silent host keeps binds the log no more",
    )
    rollback_strategy: str = _setting(
        one_of("field-hash", "json-patch"),
        "field-hash",
        "how restored entries are checked besides the digest",
    )
    rollback_write_bytes: int = _setting(
        whole(1, 2**30),
        64 * 2**20,
        "a rollback that changes more goes through a copy of the store",
    )
    collect: bool = _setting(
        flag, ON, "let `serve` run a collector, which evicts what has expired"
    )
    collect_interval_s: int = _setting(
        whole(1, 86_400), 60, "between two sweeps of a store for what has expired"
    )
    collect_grace_s: int = _setting(
        whole(0, 10**9),
        600,
        "how long an entry outlives its end, and a clock that jumps is not believed",
    )
    snapshot_url: str = _setting(
        text, "", "where snapshots are shipped: a folder, s3://, gs:// or az://"
    )
    java: Path | None = _setting(path, None, "Java 17 or newer for the embedded Kafka")
    broker_port: int = _setting(whole(0, 65535), 0, "of the embedded Kafka; 0: free")
    broker_heap_mb: int = _setting(whole(128, 65_536), 384, "of the embedded Kafka")
    watchdog_s: int = _setting(
        whole(1, 86_400), 60, "restart a process of the log that makes no progress"
    )
    audit_mode: bool = _setting(
        flag,
        OFF,
        "serve only what the log has acknowledged, answers that are passed through "
        "too, and 503 while it is away (so wal-ack=acked, on-wal-failure=refuse); "
        "sign a receipt of each record",
    )
    log_dir: Path | None = _setting(
        path, None, "of audit mode: keys/, receipts/ and the copy in sealed/"
    )
    sink_dir: Path | None = _setting(
        path, None, "where receipts and cuts are sealed in files; default log-dir"
    )
    sink_url: str = _setting(
        text, "", "seal them in a bucket, s3://bucket/prefix, in place of a folder"
    )
    sink_file_bytes: int = _setting(
        whole(2**16, 2**27), 2**25, "a sealed file's size, about"
    )
    sink_file_s: int = _setting(
        whole(1, 86_400), 300, "longest time until a receipt's file is sealed"
    )
    sink_retention_days: int = _setting(
        whole(0, 36_500), 0, "lock each object for so long; 0: as the bucket does"
    )
    sink_retention_mode: str = _setting(
        one_of("compliance", "governance"),
        "compliance",
        "lock for everybody, or but for who may bypass it",
    )
    receipts_kept: int = _setting(
        whole(10_000, 10**9), 100_000, "receipts of a partition that gateways find"
    )
    audit_root_key: str = _setting(
        text, "", "URI of the key that vouches for the others; default keys/root.pem"
    )
    audit_log_keys: str = _setting(
        text, "", "URIs of keys that sign cuts; default keys/log-*.pem"
    )
    audit_receipt_keys: str = _setting(
        text, "", "URIs of keys that sign receipts; default keys/receipt-*.pem"
    )
    audit_passphrase: str = _secret("of the keys in files")
    audit_passphrase_file: Path | None = _setting(
        path, None, "holds the passphrase; default keys/passphrase"
    )
    pkcs11_module: Path | None = _setting(
        path, None, "library of the HSM, for keys named pkcs11:..."
    )
    pkcs11_pin: str = _secret("of the HSM's token")
    pkcs11_pin_file: Path | None = _setting(path, None, "holds the token's PIN")
    payload_key: str = _setting(
        key_uri,
        "",
        "encrypt payloads, under keys that this one wraps: file:, pkcs11: or aws-kms:",
    )
    data_keys_url: str = _setting(
        text,
        "",
        "where wrapped data keys are, for all hosts of the log: a folder, s3://, gs:// "
        "or az://; default data-keys/ in data-dir, for the embedded Kafka alone",
    )
    log_level: str = _setting(
        one_of("debug", "info", "warning", "error"), "info", "of our own log lines"
    )
    kafka: Mapping[str, str] = field(default_factory=dict)

    @property
    def embedded(self) -> bool:
        """Return whether we bring the broker."""
        return BOOTSTRAP not in self.kafka

    @property
    def broker_dir(self) -> Path:
        """Return where the embedded Kafka keeps its data."""
        return self.data_dir / "broker"

    @property
    def keys_dir(self) -> Path:
        """Return where the keys of audit mode are. Raises: `InvalidSetting`."""
        return self._in_log_dir("keys")

    @property
    def sink_folder(self) -> Path:
        """Return the folder in which files are sealed. Raises: `InvalidSetting`."""
        return self.sink_dir or self._in_log_dir("receipts").parent

    @property
    def sealed_dir(self) -> Path:
        """Return where the sealed copy is. Raises: `InvalidSetting`."""
        return self._in_log_dir("sealed")

    def _in_log_dir(self, name: str) -> Path:
        if self.log_dir is None:
            raise InvalidSetting(
                _variable("log_dir"), f"name the folder in which {name}/ is kept"
            )
        return self.log_dir / name

    def environ(self) -> dict[str, str]:
        """Return the variables that make a child process read the same settings."""
        variables = {
            _variable(item.name): _write(getattr(self, item.name))
            for item in fields(self)
            if item.name != "kafka" and getattr(self, item.name) != item.default
        }
        return variables | {
            kafka_variable(name): value for name, value in self.kafka.items()
        }


def load(
    environ: Mapping[str, str],
    *,
    config: Path | None = None,
    flags: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings from all sources, the later one winning.

    Raises: `InvalidSetting` naming the variable, the file key or the flag.
    """
    named = environ.get(CONFIG_VARIABLE)
    path = config if config is not None else (Path(named) if named else None)
    values: dict[str, object] = {}
    kafka: dict[str, str] = {}
    if path is not None:
        _from_file(path, values, kafka)
    _from_environ(environ, values, kafka)
    for name, raw in (flags or {}).items():
        if name == BOOTSTRAP:
            kafka[BOOTSTRAP] = raw
        else:
            values[name] = _parse(name, raw, "--" + name.replace("_", "-"))
    values.setdefault("data_dir", Settings().data_dir.expanduser())
    if values.get("audit_mode"):
        _be_strict(values)
    return _checked(Settings(**cast(Any, values), kafka=kafka))


def kafka_variable(prop: str) -> str:
    """Return the environment variable that sets the librdkafka property `prop`."""
    return KAFKA_PREFIX + prop.replace(".", "_").upper()


def _be_strict(values: dict[str, object]) -> None:
    for name, demanded in STRICT.items():
        found = values.setdefault(name, demanded)
        if found != demanded:
            raise InvalidSetting(
                _variable(name), f"must be {demanded} in audit mode, found {found}"
            )


def _checked(settings: Settings) -> Settings:
    if settings.ttl_s > settings.max_ttl_s:
        raise InvalidSetting(_variable("ttl_s"), "must not be above max_ttl_s")
    if settings.production and settings.embedded:
        raise InvalidSetting(
            kafka_variable(BOOTSTRAP), "production needs a Kafka cluster of its own"
        )
    for name in (
        *("oidc_file", "upstream_credentials"),
        *("key_requests_per_s", "key_streams"),
    ):
        if getattr(settings, name) and not settings.auth:
            raise InvalidSetting(
                _variable(name), f"is of callers with keys: switch {PREFIX}AUTH on"
            )
    if settings.sink_dir is not None and settings.sink_url:
        raise InvalidSetting(_variable("sink_url"), "sink_dir is another target")
    if settings.sink_retention_days and not settings.sink_url:
        raise InvalidSetting(
            _variable("sink_retention_days"), "only objects are locked: name a sink_url"
        )
    return settings


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _parsers() -> dict[str, Callable[[str], object]]:
    return {
        item.name: item.metadata["parse"]
        for item in fields(Settings)
        if item.name != "kafka"
    }


def _parse(name: str, raw: str, shown: str) -> object:
    parser = _parsers().get(name)
    if parser is None:
        raise InvalidSetting(shown, "is not a setting")
    try:
        return parser(raw)
    except ValueError as error:
        raise InvalidSetting(shown, str(error)) from error


def _write(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _from_environ(
    environ: Mapping[str, str], values: dict[str, object], kafka: dict[str, str]
) -> None:
    for variable, raw in environ.items():
        if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE:
            continue
        if variable.startswith(KAFKA_PREFIX):
            prop = variable.removeprefix(KAFKA_PREFIX).lower()
            kafka[prop if prop in _UNDERSCORED else prop.replace("_", ".")] = raw
        else:
            name = variable.removeprefix(PREFIX).lower()
            values[name] = _parse(name, raw, variable)


def _from_file(path: Path, values: dict[str, object], kafka: dict[str, str]) -> None:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSetting(str(path), f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(str(path), f"is not TOML: {error}") from error
    for name, value in document.items():
        if name == "kafka" and isinstance(value, dict):
            kafka.update(_flatten("", value))
        elif isinstance(value, dict | list):
            raise InvalidSetting(name, "must be a single value")
        else:
            values[name] = _parse(name, _write(value), name)


def _flatten(prefix: str, table: Mapping[str, object]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat |= _flatten(f"{prefix}{name}.", value)
        else:
            flat[prefix + name] = _write(value)
    return flat


def is_secret(name: str) -> bool:
    """Return whether a setting comes by variable or file only."""
    return "secret" in {item.name: item.metadata for item in fields(Settings)}[name]


def is_flag(name: str) -> bool:
    """Return whether a setting is on or off, so that its flag needs no value."""
    return _parsers()[name] is flag


def described(name: str) -> tuple[str, str]:
    """Return how a setting's value is written, and what it is for with its default."""
    [item] = [item for item in fields(Settings) if item.name == name]
    parser = item.metadata["parse"]
    written = "VALUE"
    if isinstance(parser, OneOf):
        written = "|".join(parser.words)
    elif parser is flag:
        written = "true|false"
    default = (
        "" if item.default in ("", None) else f" (default: {_write(item.default)})"
    )
    return written, item.metadata["doc"] + default
