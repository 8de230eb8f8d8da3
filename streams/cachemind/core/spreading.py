"""Which member of a group is given which partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

Place = tuple[str, int]
"""A topic and the number of a partition."""


def spread(
    partitions: Mapping[str, int],
    members: Mapping[str, Set[str]],
    held: Mapping[str, Set[Place]],
) -> Mapping[str, Sequence[Place]]:
    """Return the partitions of each member: as many for all, and few moved.

    `partitions` counts those of each topic, `members` names the topics that each has
    subscribed to, and is given none of others. `held` is what each had before.
    """
    places = [
        (name, at) for name in sorted(partitions) for at in range(partitions[name])
    ]
    given: dict[str, list[Place]] = {member: [] for member in sorted(members)}
    if not given:
        return given
    fair, left = len(places) // len(given), []
    for place in places:
        for member, own in given.items():
            keeps = place in held.get(member, ()) and place[0] in members[member]
            if keeps and len(own) < fair:
                own.append(place)
                break
        else:
            left.append(place)
    for place in left:
        able = [member for member in given if place[0] in members[member]]
        if able:
            # Where several have as few, who had it before.
            least = min(
                able, key=lambda m: (len(given[m]), place not in held.get(m, ()))
            )
            given[least].append(place)
    return given
