"""Token files that the config names: whether an engine would get a token from them."""

from pathlib import PurePath

from llmhost.sources.base import SourceError
from llmhost.sources.engine.fetch import authorization_by


def token_fault(token_file: PurePath | None) -> str:
    """Say what is wrong with a token file; "" for nothing. Raises PermissionError if this user may not read it."""
    try:
        authorization_by(token_file)
    except SourceError as error:
        if isinstance(error.__context__, PermissionError):
            raise error.__context__ from None
        return error.detail
    return ""
