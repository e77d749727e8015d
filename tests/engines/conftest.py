"""Fixtures of this folder: real servers, with a source that asks them."""

from tests.fakes.engine_servers import engines

__all__ = ["engines"]
