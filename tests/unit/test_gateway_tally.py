"""What is tallied is what would have been counted one by one."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram

from cachemind.events import Outcome
from cachemind_services.gateway.metrics import GatewayMetrics
from cachemind_services.gateway.tally import SETTLE_S, Tally

BOUNDS = (0.001, 0.01, 0.1)


def metrics() -> tuple[CollectorRegistry, Counter, Histogram]:
    registry = CollectorRegistry()
    return (
        registry,
        Counter("hits", "Hits.", registry=registry),
        Histogram("took", "Seconds.", buckets=BOUNDS, registry=registry),
    )


def samples(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("le", "")): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@given(
    st.lists(
        st.sampled_from([0.0, 0.001, 0.0011, 0.0625, 0.1, 0.125, 7.0]), max_size=40
    )
)
def test_a_tally_equals_counting_one_by_one(values: list[float]) -> None:
    expected, counter, histogram = metrics()
    for value in values:
        counter.inc()
        histogram.observe(value)
    registry, *own = metrics()

    async def count() -> None:
        tally = Tally(own[0], own[1], BOUNDS)  # type: ignore[arg-type]  # as made above
        for number, value in enumerate(values):
            tally.count(value)
            if number % 7 == 3:
                tally.settle()
        tally.settle()

    asyncio.run(count())
    found = samples(registry)
    assert found.keys() == samples(expected).keys()
    for name, value in samples(expected).items():
        assert abs(found[name] - value) < 1e-9


async def test_a_tally_settles_by_itself() -> None:
    registry, counter, histogram = metrics()
    tally = Tally(counter, histogram, BOUNDS)
    tally.count(0.5)
    assert samples(registry)[("hits_total", "")] == 0
    await asyncio.sleep(SETTLE_S * 2)
    assert samples(registry)[("hits_total", "")] == 1


async def test_the_exposition_shows_every_hit_so_far() -> None:
    found = GatewayMetrics()
    found.hit(Outcome.HIT_EXACT, 0.002)
    found.hit(Outcome.HIT_SEMANTIC, 0.2)
    found.settle()
    text = found.render().decode()
    assert 'cachemind_requests_total{outcome="hit_exact"} 1.0' in text
    assert 'cachemind_requests_total{outcome="hit_semantic"} 1.0' in text
    assert "cachemind_added_latency_seconds_count 2.0" in text
    assert 'cachemind_added_latency_seconds_bucket{le="0.002"} 1.0' in text
