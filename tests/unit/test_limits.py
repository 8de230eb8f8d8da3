"""What one credential may use up: rates, streams, and a worker's share of them."""

from __future__ import annotations

import pytest

from cachemind.core.token_bucket import Rate
from cachemind_services.gateway.limits import Limits, Meter, Meters, TooMany
from cachemind_services.gateway.worker import limits_of
from cachemind_services.settings import Settings

NS_PER_S = 1_000_000_000


def test_a_burst_then_the_rate_and_the_wait_is_told() -> None:
    meter = Meter(Limits(rate=Rate(per_s=0.25, burst=2.0)), 0)
    meter.request(0)
    meter.request(0)
    with pytest.raises(TooMany) as refused:
        meter.request(0)
    assert (refused.value.what, refused.value.retry_s) == ("requests", 4)
    with pytest.raises(TooMany) as refused:
        meter.request(3 * NS_PER_S)
    assert refused.value.retry_s == 1
    meter.request(4 * NS_PER_S)
    with pytest.raises(TooMany):
        meter.request(4 * NS_PER_S)


def test_streams_are_counted_while_they_are_open() -> None:
    meter = Meter(Limits(streams=2), 0)
    meter.begin_stream()
    meter.begin_stream()
    with pytest.raises(TooMany) as refused:
        meter.begin_stream()
    assert (refused.value.what, refused.value.retry_s) == ("streams", 1)
    meter.end_stream()
    meter.begin_stream()
    assert meter.open_streams == 2


def test_without_limits_nothing_is_refused() -> None:
    meter = Meter(Limits(), 0)
    for _ in range(1_000):
        meter.request(0)
        meter.begin_stream()


def test_each_credential_has_a_meter_and_the_one_not_seen_longest_goes() -> None:
    meters = Meters(Limits(rate=Rate(per_s=1.0, burst=1.0)), most=2)
    one, other = meters.of("one", 0), meters.of("other", 0)
    one.request(0)
    other.request(0)
    assert meters.of("one", 0) is one
    meters.of("third", 0)
    assert meters.of("one", 0) is one
    assert meters.of("other", 0) is not other


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(Settings(auth=True), Limits(), id="none"),
        pytest.param(
            Settings(auth=True, key_requests_per_s=50, key_burst=20, key_streams=9),
            Limits(rate=Rate(per_s=50.0, burst=20.0), streams=9),
            id="one-worker-has-all",
        ),
        pytest.param(
            Settings(
                auth=True,
                workers=4,
                key_requests_per_s=50,
                key_burst=20,
                key_streams=9,
            ),
            Limits(rate=Rate(per_s=12.5, burst=5.0), streams=2),
            id="four-share",
        ),
        pytest.param(
            Settings(
                auth=True, workers=4, key_requests_per_s=1, key_burst=1, key_streams=1
            ),
            Limits(rate=Rate(per_s=0.25, burst=1.0), streams=1),
            id="never-less-than-one-at-once",
        ),
    ],
)
def test_a_worker_has_its_share_of_what_a_host_allows(
    settings: Settings, expected: Limits
) -> None:
    assert limits_of(settings) == expected
