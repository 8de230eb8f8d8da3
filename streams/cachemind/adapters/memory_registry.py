"""Schema ids in memory, for tests and simulations."""

from __future__ import annotations

from threading import Lock

from cachemind.errors import UnknownSchema


class MemoryIds:
    """`SchemaIds` that counts up from 1 and forgets with the process."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._lock = Lock()

    def id_for(self, schema_text: str) -> int:
        """Return the id of a schema; a new one where it was never seen."""
        with self._lock:
            if schema_text not in self._texts:
                self._texts.append(schema_text)
            return self._texts.index(schema_text) + 1

    def schema_for(self, schema_id: int) -> str:
        """Return the schema's text.

        Raises: `UnknownSchema` for an id never given.
        """
        if not 1 <= schema_id <= len(self._texts):
            raise UnknownSchema(f"schema id {schema_id}")
        return self._texts[schema_id - 1]
