"""Make one small JSON Schema of those that `make` has generated, in the words that tests/fakes/json_schema.py knows.

Left out: descriptions, and what is `required`, as Grafana fills in its defaults. Keys without a property are forbidden.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NOTICE = (
    "Made by ./make from the types of @grafana/schema {version}, Copyright Grafana Labs, Apache License 2.0; changed: "
    "put together, and without descriptions and required properties."
)
LEFT_OUT = frozenset({"$schema", "description", "deprecated", "required", "definitions"})


def shrunk(schema: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
    """Leave out what no dashboard is held to, and give definitions their new names."""
    if isinstance(schema, list):
        return [shrunk(item, names) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            kept[key] = {name: shrunk(inner, names) for name, inner in value.items()}
        elif key == "$ref":
            kept[key] = "#/$defs/" + names[value.removeprefix("#/definitions/")]
        elif key not in LEFT_OUT and (key, value) != ("additionalProperties", False):
            kept[key] = shrunk(value, names)
    return kept


def together(schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Give all definitions, name → schema; those of a root type are named for it: `table.Options.TableCellHeight`."""
    found: dict[str, Any] = {}
    for root, schema in schemas.items():
        own = schema["$ref"].removeprefix("#/definitions/")
        names = {name: root if name == own else f"{root}.{name}" for name in schema["definitions"]}
        found |= {names[name]: shrunk(definition, names) for name, definition in schema["definitions"].items()}
    return found


def main(version: str, folder: str) -> None:
    generated = {path.name: path.read_text(encoding="utf-8") for path in sorted(Path(folder).iterdir())}
    definitions = together({name: json.loads(text) for name, text in generated.items()})
    # One definition a line: small, and a difference can be read.
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(definition)}" for name, definition in sorted(definitions.items())
    )
    print(f'{{"$comment": {json.dumps(NOTICE.format(version=version))},\n"$defs": {{\n{lines}\n}}}}')


if __name__ == "__main__":
    main(*sys.argv[1:])
