"""Keys and policies by the command line: on the log, folded, two writers at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from cachemind.adapters.clock import SystemClock
from cachemind.adapters.kafka_reader import KafkaReader
from cachemind.adapters.kafka_truncate import delete_records
from cachemind.core.access import ACCESS_NAMESPACE, Role
from cachemind.core.api_keys import ApiKey, KeyBook
from cachemind.core.partitioner import partition_of
from cachemind.events import PolicyChanged
from cachemind.types import Lsn, Namespace, Offset
from cachemind_services.bootstrap.key_book import Grant, create_key, revoke_key
from cachemind_services.bootstrap.log import identify
from cachemind_services.bootstrap.policies import change_policy, read_policy
from cachemind_services.broker import EmbeddedBroker
from cachemind_services.cli.main import main
from cachemind_services.settings import Settings, load
from tests.integration.cli_host import PARTITIONS, CliHost, cli_host
from tests.wal_events import stored

pytestmark = pytest.mark.broker

HOME = partition_of(ACCESS_NAMESPACE.encode(), PARTITIONS)
SHOP = Namespace("shop")


class Operator:
    """Somebody at the command line of one installation."""

    def __init__(
        self, host: CliHost, settings: Settings, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.host = host
        self.settings = settings
        self._capsys = capsys

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Return what a command writes to standard output and error."""
        self._capsys.readouterr()
        assert main(words) == code
        written = self._capsys.readouterr()
        return written.out, written.err

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json")[0])

    def create(self, *more: str) -> Any:
        words = ("--role", "cache-writer", "--namespace", "shop", *more)
        return self.json("keys", "create", *words)

    def book(self) -> KeyBook:
        return KeyBook.parse(read_policy(self.settings, ACCESS_NAMESPACE))

    def records(self) -> list[bytes]:
        """Return every record of the log."""
        host = self.host
        with closing(KafkaReader(host.kafka, host.wal)) as reader:
            return [
                record.value or b""
                for partition in host.partitions
                for batch in reader.read(partition, *reader.bounds(partition))
                for record in batch
            ]

    def finds(self, key: str) -> bool:
        """Return whether a key counts now."""
        now_ns = SystemClock().now_ns()
        return self.book().find(key, now_ns) is not None


@pytest.fixture
def operator(
    broker: EmbeddedBroker,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Operator]:
    assert broker.bootstrap_servers is not None
    with cli_host(broker.bootstrap_servers, topic_prefix, tmp_path) as host:
        for name, value in host.environ().items():
            if name.startswith("CACHEMIND_"):
                monkeypatch.setenv(name, value)
        settings = load(host.environ())
        identify(settings)
        yield Operator(host, settings, capsys)


def grant(name: str = "") -> Grant:
    return Grant(
        name=name,
        role=Role.CACHE_READER,
        namespaces=["shop"],
        prefixes=[],
        life_ms=None,
    )


def test_a_key_is_made_listed_rotated_and_revoked(operator: Operator) -> None:
    key, told = operator.run(
        *("keys", "create", "--name", "checkout", "--role", "cache-reader"),
        *("--namespace", "shop", "--prefix", "public:", "--expires", "90d"),
    )
    key = key.strip()
    assert operator.finds(key)
    assert key not in told
    (row,) = operator.json("keys", "list")
    assert key.startswith(f"cmk_{row['key_id']}_")
    assert (row["name"], row["role"], row["namespaces"], row["prefixes"]) == (
        *("checkout", "cache-reader"),
        ["shop"],
        ["public:"],
    )
    made = operator.json("keys", "rotate", row["key_id"], "--overlap", "1h")
    assert operator.finds(key)
    assert operator.finds(made["key"])
    # A whole key, pasted, is as good as its id.
    revoked = operator.json("keys", "revoke", key)
    assert revoked["lsn"] is not None
    assert not operator.finds(key)
    assert operator.finds(made["key"])
    assert operator.json("keys", "revoke", key)["lsn"] is None
    shown, _ = operator.run("keys", "list")
    heads, first, second = shown.splitlines()
    assert heads.split() == [
        *("KEY", "NAME", "ROLE", "NAMESPACES", "PREFIXES", "STATE", "EXPIRES")
    ]
    assert [line.split()[5] for line in (first, second)] == ["revoked", "active"]


def test_a_key_may_begin_later(operator: Operator) -> None:
    made = operator.create("--begins", "1h", "--expires", "1d")
    assert not operator.finds(made["key"])
    (row,) = operator.json("keys", "list")
    assert (row["state"], row["key_id"]) == ("not yet", made["key_id"])
    begins, expires = map(datetime.fromisoformat, (row["begins"], row["expires"]))
    assert expires - begins == timedelta(days=1)
    assert operator.create()["begins"] is None


def test_the_log_holds_no_secret(operator: Operator) -> None:
    made = operator.create()
    secret = made["key"].rpartition("_")[2]
    records = operator.records()
    assert any(b"cache-writer" in record for record in records)
    assert not any(secret.encode() in record for record in records)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        pytest.param(("--namespace", "Shop"), "--namespace", id="no-namespace"),
        pytest.param(("--namespace", "cachemind.access"), "--namespace", id="reserved"),
        pytest.param(("--namespace", "s", "--prefix", ""), "--prefix", id="prefix"),
        pytest.param(("--namespace", "s", "--name", "a\nb"), "--name", id="name"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_argument(
    operator: Operator, words: tuple[str, ...], named: str
) -> None:
    _, told = operator.run("keys", "create", "--role", "cache-reader", *words, code=2)
    assert f"cachemind: {named}: " in told
    assert operator.book().revision == 0


def test_a_key_that_is_not_there_is_said_to_be_so(operator: Operator) -> None:
    _, told = operator.run("keys", "revoke", "cmk_Nothere2", code=2)
    assert "KEY: there is no such key" in told
    _, told = operator.run("keys", "rotate", "Nothere2", code=2)
    assert "KEY: there is no such key" in told


def test_many_writers_at_once_lose_no_key(operator: Operator) -> None:
    start = Barrier(4)

    def make(writer: int) -> list[str]:
        start.wait(30)
        return [create_key(operator.settings, grant(f"{writer}")).text for _ in "ab"]

    with ThreadPoolExecutor(4) as writers:
        keys = [key for made in writers.map(make, range(4)) for key in made]
    book = operator.book()
    assert len(keys) == len(book.keys) == book.revision == 8
    assert all(operator.finds(key) for key in keys)
    # Who lost was written too: the log has more events than the book has changes.
    events = [record for record in operator.records() if b'"keys"' in record]
    assert len(events) >= book.revision


def test_a_change_that_lost_is_done_again_on_top(operator: Operator) -> None:
    settings = operator.settings
    key = create_key(settings, grant())
    between: list[str] = []

    def change(policy: str) -> str:
        if not between:
            # Another operator revokes between this one's reading and writing.
            revoke_key(settings, key.key.key_id)
            between.append(policy)
        return KeyBook.parse(policy).created(other, 1).render()

    other = ApiKey(
        key_id="Otherkey",
        digest="0" * 64,
        role=Role.AUDITOR,
        namespaces=(SHOP,),
        created_ms=1,
        not_before_ms=1,
    )
    done = change_policy(settings, ACCESS_NAMESPACE, change)
    book = operator.book()
    assert book == KeyBook.parse(done.policy)
    assert set(book.keys) == {key.key.key_id, "Otherkey"}
    assert not operator.finds(key.text)
    assert book.revision == 3


def test_the_fold_and_the_command_line_see_one_book(operator: Operator) -> None:
    host = operator.host
    first = operator.create()
    # What anybody else puts there neither empties the book nor opens a gate.
    for policy in ("", "{}", "nonsense", '{"keys":[],"revision":1}'):
        host.append(PolicyChanged(policy=policy), namespace=ACCESS_NAMESPACE)
    second = operator.create()
    host.start()
    host.wait_folded()
    book = operator.book()
    assert host.state(ACCESS_NAMESPACE).policy == book.render()
    assert host.state(ACCESS_NAMESPACE).counts["policy_refused"] == 4
    assert set(book.keys) == {first["key_id"], second["key_id"]}
    # With a store the log may be gone, and what came after the store's end counts.
    host.stop()
    third = operator.create()
    end = host.ends()[HOME]
    delete_records(host.kafka, host.wal, {HOME: host.applied()[HOME]}, 20)
    assert set(operator.book().keys) == {*book.keys, third["key_id"]}
    assert host.ends()[HOME] == end


def test_a_replay_asks_for_no_key_and_is_shown_to_this_machine_alone(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys would be those of then, and who was shut out since would be let in."""
    monkeypatch.setenv("CACHEMIND_AUTH", "true")
    operator.create()
    host = operator.host
    host.append(stored(1), namespace=SHOP)
    host.start()
    host.wait_folded()
    operator.run("replay", "--to-lsn", str(Lsn(HOME, Offset(0))), "--namespace", "shop")
    _, told = operator.run(
        *("replay", "query", "never asked", "--model", "m", "--namespace", "shop"),
        code=1,
    )
    assert "nothing was cached for that (504)" in told
    _, told = operator.run("replay", "serve", "--host", "0", code=2)
    assert "host: 0 is reached from other machines" in told


def test_a_log_that_begins_too_late_is_not_taken_for_an_empty_book(
    operator: Operator,
) -> None:
    operator.create()
    host = operator.host
    delete_records(host.kafka, host.wal, {HOME: host.ends()[HOME]}, 20)
    _, told = operator.run("keys", "list", code=1)
    assert "--data-dir" in told
    _, told = operator.run(
        *("keys", "create", "--role", "auditor", "--namespace", "shop"), code=1
    )
    assert "--data-dir" in told


def test_a_policy_is_set_shown_and_followed_by_the_fold(
    operator: Operator, tmp_path: Path
) -> None:
    toml, as_json = tmp_path / "p.toml", tmp_path / "p.json"
    toml.write_text('threshold = 0.95\nvolatile = "short"\n')
    done = operator.json("policy", "set", str(toml), "--namespace", "shop")
    assert done["policy"] == {"threshold": 0.95, "volatile": "short"}
    assert done["lsn"] is not None
    assert operator.json("policy", "show", "--namespace", "shop") == done["policy"]
    again = operator.json("policy", "set", str(toml), "--namespace", "shop")
    assert again["lsn"] is None
    # What is shown can be set again, and another namespace has none of it.
    shown, _ = operator.run("policy", "show", "--namespace", "shop")
    toml.write_text(shown)
    assert (
        operator.json("policy", "set", str(toml), "--namespace", "shop")["lsn"] is None
    )
    assert operator.json("policy", "show", "--namespace", "shops") == {}
    as_json.write_text('{"max_entries": 5}')
    operator.json("policy", "set", str(as_json), "--namespace", "shop")
    operator.host.start()
    operator.host.wait_folded()
    assert operator.host.state(SHOP).policy == '{"max_entries":5}'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("threshold = 2", "threshold"),
        ("treshold = 0.9", "treshold"),
        ('max_entries = "5"', "max_entries"),
        ("threshold", "policy.toml"),
    ],
)
def test_a_wrong_policy_names_its_member_and_changes_nothing(
    operator: Operator, tmp_path: Path, text: str, named: str
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    _, told = operator.run("policy", "set", str(path), "--namespace", "shop", code=2)
    assert f"{named}: " in told
    assert read_policy(operator.settings, SHOP) == ""


@pytest.mark.parametrize("namespace", ["cachemind.access", "cachemind.system"])
def test_the_installations_own_namespaces_have_no_policy_to_set(
    operator: Operator, tmp_path: Path, namespace: str
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("threshold = 0.9")
    for words in (("set", str(path)), ("show",)):
        _, told = operator.run("policy", *words, "--namespace", namespace, code=2)
        assert "the installation's own" in told


def test_a_policy_file_that_is_not_there_is_named(operator: Operator) -> None:
    _, told = operator.run("policy", "set", "absent.toml", code=2)
    assert "absent.toml: cannot be read" in told
