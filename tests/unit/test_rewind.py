from __future__ import annotations

import pytest

from cachemind.core.rewind import rewound
from cachemind.types import Offset, Partition


@pytest.mark.parametrize(
    ("committed", "remembered", "moved"),
    [
        pytest.param(50, 100, 50, id="moved-back-by-hand"),
        pytest.param(0, 100, 0, id="moved-to-the-start"),
        pytest.param(100, 100, None, id="stopped-in-order"),
        pytest.param(140, 100, None, id="killed-after-live-commits"),
        pytest.param(None, 100, None, id="kafka-forgot-the-group"),
        pytest.param(50, None, None, id="this-host-never-committed"),
    ],
)
def test_a_group_is_rewound_only_below_what_we_committed_ourselves(
    committed: int | None, remembered: int | None, moved: int | None
) -> None:
    here = Partition(2)
    found = rewound(
        {here: None if committed is None else Offset(committed)},
        {} if remembered is None else {here: Offset(remembered)},
    )
    assert found == ({} if moved is None else {here: Offset(moved)})
