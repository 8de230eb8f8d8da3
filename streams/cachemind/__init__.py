"""CacheMind: a semantic cache for LLM responses with Kafka as its source of truth."""

__all__ = ["__version__"]

__version__ = "0.1.0"
