"""JSON held against a JSON Schema, of which this knows what docs/*.schema.json use; any other keyword is an error.

Stricter than the schema: what it has no property for is a fault, so that nothing is printed that is not described.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_KEYWORDS = {
    *("$schema", "$defs", "$ref", "title", "description", "type", "const", "enum", "anyOf"),
    *("properties", "required", "additionalProperties", "propertyNames", "items"),
}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}


def faults(value: Any, schema: Mapping[str, Any], whole: Mapping[str, Any], at: str = "$") -> Iterator[str]:  # noqa: ANN401
    """Say what is wrong with a value, and where; `whole` is the schema that `$ref` is about."""
    unknown = schema.keys() - _KEYWORDS
    assert not unknown, f"the schema of {at} has {unknown}"
    if "$ref" in schema:
        yield from faults(value, whole["$defs"][schema["$ref"].removeprefix("#/$defs/")], whole, at)
    if "anyOf" in schema:
        tries = [list(faults(value, choice, whole, at)) for choice in schema["anyOf"]]
        if all(tries):
            yield min(tries, key=len)[0]
    if "const" in schema and value != schema["const"]:
        yield f"{at} is {value!r}, not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} is {value!r}, none of {schema['enum']}"
    if "type" in schema and not _is(value, schema["type"]):
        yield f"{at} is {type(value).__name__}, not {schema['type']}"
    elif isinstance(value, dict):
        yield from _of_object(value, schema, whole, at)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from faults(item, schema["items"], whole, f"{at}[{index}]")


def _of_object(value: Mapping[str, Any], schema: Mapping[str, Any], whole: Mapping[str, Any], at: str) -> Iterator[str]:
    if "type" not in schema:
        return  # what `$ref` and `anyOf` say has been looked at
    properties = schema.get("properties", {})
    yield from (f"{at} has no {name}" for name in schema.get("required", ()) if name not in value)
    for name, member in value.items():
        if name in properties:
            yield from faults(member, properties[name], whole, f"{at}.{name}")
        elif "additionalProperties" in schema:
            yield from faults(name, schema.get("propertyNames", {}), whole, f"{at} (a name)")
            yield from faults(member, schema["additionalProperties"], whole, f"{at}.{name}")
        else:
            yield f"{at}.{name} is not described"


def _is(value: object, types: str | list[str]) -> bool:
    wanted = [types] if isinstance(types, str) else types
    return any(
        isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool)) for name in wanted
    )
