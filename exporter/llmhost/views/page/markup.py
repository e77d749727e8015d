"""HTML by functions: what is no Markup is text, and is escaped. Pure.

Any local user can choose the names of processes on a page. Only printable characters get through (views/text), and a
name that is written from right to left does not affect its surroundings (`isolated`).
"""

import hashlib
from collections.abc import Iterable
from html import escape
from typing import TypeAlias

from llmhost.views.text import Piece, Style, clean


class Markup(str):
    """Well-formed HTML that is safe between tags. Made here, or of constants."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child]"


def joined(*children: Child) -> Markup:
    return Markup("".join(_shown(child) for child in children))


def tag(name: str, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """Make an element; `class_` is class and `aria_label` is aria-label. True stands alone; None and False are none."""
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def isolated(text: str) -> Markup:
    """Keep text that is written from right to left from reordering the text around it."""
    return tag("bdi", text)


def styled(name: str, piece: Piece) -> Markup:
    text, style = piece
    return tag(name, isolated(text), class_=None if style is Style.PLAIN else _class(style))


def _class(style: Style) -> str:
    return style.name.lower().removesuffix("_filled")


def identity(kind: str, *names: str) -> str:
    """Make an id that is stable between observations; names may have characters that an id cannot."""
    return f"{kind}-" + hashlib.sha256("\0".join(names).encode(errors="surrogatepass")).hexdigest()[:12]


def link(text: Child, to: str) -> Markup:
    return tag("a", text, href=to)


def _shown(child: Child) -> str:
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escape(clean(child), quote=False)
    return "".join(_shown(item) for item in child)


def _attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f' {name}="{escape(clean(text), quote=True)}"'
