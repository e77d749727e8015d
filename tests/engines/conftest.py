"""Fixtures of this folder: real servers and a source that asks them."""

from tests.fakes.engine_servers import run_engine, source

__all__ = ["run_engine", "source"]
