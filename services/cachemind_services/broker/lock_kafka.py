"""Write the lock file anew: `python -m cachemind_services.broker.lock_kafka`.

For maintainers who change the Kafka version. The checksums are those of what the
repository serves now, so review the difference before committing it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from cachemind_services.broker.kafka_lock import LOCK_FILE
from cachemind_services.broker.maven import MavenRepository


def main() -> int:
    """Resolve the pinned roots, download all jars, write the lock; return 0."""
    with tempfile.TemporaryDirectory() as scratch:
        lock = MavenRepository(Path(scratch)).resolve()
    path = Path(__file__).with_name(LOCK_FILE)
    path.write_text(lock.to_json(), encoding="utf-8")
    sys.stderr.write(f"{path}: {len(lock.jars)} jars of Kafka {lock.kafka_version}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
