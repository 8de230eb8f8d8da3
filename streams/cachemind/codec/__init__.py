"""Events to and from the bytes that are on the WAL."""

from cachemind.codec.codec import Codec

__all__ = ["Codec"]
