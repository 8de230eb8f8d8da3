"""How far back a namespace's history is kept, once the log alone leads nowhere.

As long as the log holds a namespace's first event every version can be rebuilt, and
nothing of its history is given up. After that only what is kept leads back: the
checkpoints, pinned ones and named ones among them. What none of them needs goes.
"""

from __future__ import annotations

from cachemind.core.timeline import History
from cachemind.types import Version


def first_needed(history: History, oldest: Version) -> Version:
    """Return the first version whose row a rebuild from what is kept may need.

    `oldest` is the lowest version that a kept checkpoint holds. A rebuild needs the
    rows from its base to its target, and those on the way from head and target back to
    their common ancestor: that is below `oldest` only where a later rollback went back
    further than that. Of any two that did, the common ancestor is not below those that
    each has with `oldest`.
    """
    crossed = [
        history.common_ancestor(branch.target, oldest) + 1
        for branch in history.branches
        if branch.at > oldest and branch.target < oldest
    ]
    return Version(min([oldest, *crossed]))
