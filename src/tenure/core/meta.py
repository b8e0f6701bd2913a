"""Encodes the meta data of leases as compact JSON."""

from __future__ import annotations

import msgspec

from tenure.core.leases import Meta

__all__ = ["decode_meta", "encode_meta"]

_meta = msgspec.json.Decoder(dict[str, str])


def encode_meta(meta: Meta) -> str:
    """Return the text a store keeps for `meta`; empty for the common case of none."""
    return msgspec.json.encode(meta).decode() if meta else ""


def decode_meta(text: str | bytes) -> Meta:
    """Decode the text of `encode_meta`. Returns {} for any other text.

    Meta data only describes a holder to people. A lease is valid without it.
    """
    try:
        return _meta.decode(text) if text else {}
    except (ValueError, TypeError, RecursionError):
        return {}
