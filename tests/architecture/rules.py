"""The rules of docs/architecture.md that the source shows: a pure function from module texts to violations."""

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

PACKAGE = "llmhost"

# Folder → what of llmhost it may import, beside itself: folders, or single modules. cli may import everything.
MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "runtime": frozenset(),
    "model": frozenset(),
    "config": frozenset({"model"}),
    "sources": frozenset({"model", "runtime"}),
    "derive": frozenset({"model", "config.schema"}),
    "decide": frozenset({"model", "derive", "config.schema"}),
    "state": frozenset({"model", "derive.history", "sources.base", "config.paths", "runtime"}),
    "collect": frozenset({"model", "sources.base", "derive", "config.schema", "runtime"}),
    "starts": frozenset({"model", "sources.base", "derive", "config.schema", "collect", "runtime"}),
    "act": frozenset({"model", "decide", "sources.procfs_files", "config.paths", "runtime"}),
    "metrics": frozenset({"model", "derive", "decide", "collect", "config.schema"}),
    "views": frozenset({"model", "derive", "decide"}),
    "serve": frozenset({"model.listen", "runtime"}),
    # The composition root alone names concrete sources.
    "assemble": frozenset({"model", "config", "sources", "derive", "decide", "state", "collect", "starts", "runtime"}),
    "guard": frozenset(
        {
            *("model", "config", "derive", "decide", "state", "collect", "act", "views", "assemble"),
            *("runtime", "sources.base", "sources.sd_notify"),
        }
    ),
}

# Library → the modules, or packages, that alone may import it. A library that is not here may not be imported at all.
SOLE_IMPORTERS: Mapping[str, tuple[str, ...]] = {
    "pynvml": ("sources.nvml.child.worker",),
    "dbus_next": ("sources.systemd.bus",),
    "asyncio": ("sources.systemd",),
    "prometheus_client": ("metrics", "sources.engine.parse"),
    "yaml": ("config.load", "config.nodes"),
    "psutil": ("sources",),
}

PURE = (
    "model",
    "derive",
    "decide",
    "views",
    "metrics.families",
    "metrics.leftovers",
    "metrics.starts",
    "metrics.throughput",
)
# Of the standard library, what neither reads a clock nor does I/O nor keeps a state. Add to it what is like that.
PURE_LIBRARY = frozenset(
    (
        *("abc", "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "difflib", "enum", "fnmatch"),
        *(
            "fractions",
            "functools",
            "graphlib",
            "hashlib",
            "heapq",
            "html",
            "ipaddress",
            "itertools",
            "json",
            "math",
            "numbers",
        ),
        *("operator", "re", "shlex", "statistics", "string", "struct", "textwrap", "types", "typing", "unicodedata"),
        "urllib.parse",
    )
)
PURE_NAMES_OF: Mapping[str, frozenset[str]] = {  # of modules that do I/O otherwise
    "pathlib": frozenset({"PurePath", "PurePosixPath"}),
    "posixpath": frozenset({"basename", "commonpath", "dirname", "join", "normpath", "split", "splitext"}),
}
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "globals", "__import__"})
IMPURE_METHODS = frozenset({"now", "utcnow", "today"})
MUTABLE_CALLS = frozenset({"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"})
READ_ONLY_TYPES = frozenset({"Mapping", "Sequence", "Collection", "Set", "AbstractSet", "Iterable", "Container"})

FORBIDDEN_WORDS = frozenset({"util", "utils", "common", "helper", "helpers", "manager", "managers", "misc"})
MOST_LINES = 400


@dataclass(frozen=True, slots=True)
class Import:
    module: str  # absolute, as far as it is known to be a module
    name: str  # what is taken from it, or ""
    line: int


def violations(sources: Mapping[str, str]) -> list[str]:
    """Check the package given as {module name: text}; packages are named without `__init__`."""
    found: list[str] = []
    for module, text in sorted(sources.items()):
        tree = ast.parse(text)
        imports = list(imports_of(module, tree, sources))
        found += [f"{module}: {what}" for what in _naming(module, text)]
        found += [f"{module}:{imported.line}: {what}" for imported in imports for what in _forbidden(module, imported)]
        if _within(module, PURE):
            found += [f"{module}:{imported.line}: {what}" for imported in imports for what in _impure_import(imported)]
            found += [f"{module}:{line}: {what}" for line, what in _impure_code(tree)]
    return found


def imports_of(module: str, tree: ast.AST, sources: Mapping[str, str]) -> Iterator[Import]:
    """Every import, also inside functions and under TYPE_CHECKING, relative ones made absolute."""
    is_package = any(name.startswith(f"{module}.") for name in sources)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, "", node.lineno)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                parts = module.split(".")
                base = parts[: len(parts) - node.level + (1 if is_package else 0)]
                origin = ".".join([*base, *([origin] if origin else [])])
            for alias in node.names:
                deeper = f"{origin}.{alias.name}"
                if deeper in sources or (origin == PACKAGE and alias.name in {*MAY_IMPORT, "cli"}):
                    yield Import(deeper, "", node.lineno)
                else:
                    yield Import(origin, alias.name, node.lineno)


def _within(module: str, places: tuple[str, ...]) -> bool:
    """Say whether a module is one of these, or lies in one of these packages."""
    return any(module == f"{PACKAGE}.{place}" or module.startswith(f"{PACKAGE}.{place}.") for place in places)


def _folder(module: str) -> str:
    return [*module.split("."), ""][1]


def _naming(module: str, text: str) -> Iterator[str]:
    for part in module.split("."):
        if bad := FORBIDDEN_WORDS.intersection(part.split("_")):
            yield f"'{min(bad)}' says nothing about what is in it"
    if _folder(module) not in {"", "__main__", "cli", *MAY_IMPORT}:
        yield f"docs/architecture.md has no folder {_folder(module)}"
    if (lines := text.count("\n")) > MOST_LINES:
        yield f"{lines} lines; at most {MOST_LINES}"


def _forbidden(module: str, wanted: Import) -> Iterator[str]:
    top = wanted.module.split(".")[0]
    if top == PACKAGE:
        yield from _forbidden_inside(module, wanted.module)
    elif top in SOLE_IMPORTERS:
        if not _within(module, SOLE_IMPORTERS[top]):
            yield f"imports {top}, which only {' and '.join(SOLE_IMPORTERS[top])} may"
    elif top not in sys.stdlib_module_names:
        yield f"imports {top}, which is no dependency"
    elif top == "importlib" and wanted.module + wanted.name in {"importlib", "importlibimport_module"}:
        yield "imports by a computed name"


def _forbidden_inside(module: str, wanted: str) -> Iterator[str]:
    importer, folder = _folder(module), _folder(wanted)
    if folder in {"", importer}:  # the package itself has the version and nothing else
        return
    if folder == "cli":
        if importer != "__main__":
            yield f"imports {wanted}, and nothing imports cli"
    elif importer in {"cli", "__main__"}:
        if folder == "sources" and not _within(wanted, ("sources.base", "sources.sd_notify")):
            yield f"imports {wanted}, and only the package assemble names a concrete source"
    elif importer == "" or not _within(wanted, tuple(MAY_IMPORT.get(importer, ()))):
        allowed = ", ".join(sorted(MAY_IMPORT.get(importer, ()))) or "nothing"
        yield f"imports {wanted}; {importer or PACKAGE} may import {allowed}"


def _impure_import(wanted: Import) -> Iterator[str]:
    if wanted.module.split(".")[0] in {PACKAGE, *SOLE_IMPORTERS}:
        return
    if wanted.module.split(".")[0] in PURE_LIBRARY or f"{wanted.module}" in PURE_LIBRARY:
        return
    if wanted.name not in PURE_NAMES_OF.get(wanted.module, ()):
        yield f"imports {wanted.module}, which is not known to be pure"


def _impure_code(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield node.lineno, "changes a global"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield node.lineno, f"calls {node.func.id}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in IMPURE_METHODS:
            yield node.lineno, f"reads a clock by {node.func.attr}"
    for statement in _module_level(tree.body):
        if isinstance(statement, ast.Assign | ast.AnnAssign) and _is_mutable(statement.value):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = ", ".join(ast.unparse(target) for target in targets)
            read_only = isinstance(statement, ast.AnnAssign) and _is_read_only(statement.annotation)
            if names != "__all__" and not read_only:
                yield (
                    statement.lineno,
                    f"{names} can be changed by anybody: a tuple, a frozenset, or annotate as Mapping",
                )


def _module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                yield from _module_level(getattr(statement, field, []))


def _is_mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return True
    if not isinstance(value, ast.Call):
        return False
    called = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    return called in MUTABLE_CALLS


def _is_read_only(annotation: ast.expr) -> bool:
    """Say whether mypy keeps everybody from changing it: Mapping[…], Final[Sequence[…]]."""
    if isinstance(annotation, ast.Subscript):
        outer = ast.unparse(annotation.value).split(".")[-1]
        return outer in READ_ONLY_TYPES or (outer == "Final" and _is_read_only(annotation.slice))
    return ast.unparse(annotation).split(".")[-1] in READ_ONLY_TYPES
