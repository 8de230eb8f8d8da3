"""An assignor for an app whose topics have nothing to do with each other.

Faust's own gives partitions of one number to one member, for the sake of tables: all
topics that have one partition would be one process's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokafka.cluster import (  # type: ignore[import-untyped] # ships no types
    ClusterMetadata,
)
from faust.assignor.client_assignment import ClientAssignment
from faust.assignor.partition_assignor import (
    MemberAssignmentMapping,
    MemberMetadataMapping,
    PartitionAssignor,
)

from cachemind.core.spreading import Place, spread


class SpreadAssignor(PartitionAssignor):
    """Gives each partition to whoever has fewest."""

    def _perform_assignment(
        self, cluster: ClusterMetadata, member_metadata: MemberMetadataMapping
    ) -> MemberAssignmentMapping:
        known = {
            member: self._get_client_metadata(found)
            for member, found in member_metadata.items()
        }
        self._update_member_urls(known)
        members = {
            member: frozenset(found.subscription)
            for member, found in member_metadata.items()
        }
        held = {
            member: {(tp.topic, tp.partition) for tp in one.assignment.active_tps}
            for member, one in known.items()
        }
        topics = frozenset[str]().union(*members.values())
        # One that is not there has none.
        counts = {
            name: len(cluster.partitions_for_topic(name) or ()) for name in topics
        }
        return self._assigned(spread(counts, members, held))

    def _assigned(
        self, given: Mapping[str, Sequence[Place]]
    ) -> MemberAssignmentMapping:
        assignments = {}
        for member, places in given.items():
            actives: dict[str, list[int]] = {}
            for topic, number in places:
                actives.setdefault(topic, []).append(number)
            assignments[member] = ClientAssignment(actives=actives, standbys={})
        external = self._get_external_topic_distribution(assignments)
        return self._protocol_assignments(assignments, {}, external, {})
