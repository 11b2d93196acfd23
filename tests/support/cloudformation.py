"""CloudFormation templates: the resources that a stack has for given parameters.

Only the functions that the templates of `deploy/cloudformation` use are known; any other is an error.
Reference: https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen
from cfnlint.decode import decode

__all__ = ["resources_of"]

_NO_VALUE = object()
_LOOP = "Fn::ForEach::"


def resources_of(template: Path, **parameters: str) -> dict[str, dict[str, Any]]:
    """Return the resources of a stack by logical id: type, and properties without functions.

    Args:
        template: the file.
        parameters: their values. Others have their defaults. A `Ref` to a resource is its id.
    """
    body, problems = decode(str(template))
    assert body is not None and not problems, problems
    values = {name: each["Default"] for name, each in body["Parameters"].items() if "Default" in each}
    assert parameters.keys() <= body["Parameters"].keys()
    scope = _Scope(body, {**values, **parameters})
    return {
        name: {"Type": each["Type"], "Properties": inner.value_of(each["Properties"])}
        for name, each, inner in scope.resources()
        if "Condition" not in each or inner.condition(each["Condition"])
    }


@frozen
class _Scope:
    """A template with the values of parameters and of the variables of loops."""

    body: Mapping[str, Any]
    names: Mapping[str, Any]

    def resources(self) -> Iterator[tuple[str, Mapping[str, Any], _Scope]]:
        """Yield each resource with the scope of its functions; those of loops one by one."""
        for name, each in self.body["Resources"].items():
            if not name.startswith(_LOOP):
                yield name, each, self
                continue
            variable, values, [(pattern, one)] = each[0], each[1], each[2].items()
            for value in values:
                inner = _Scope(self.body, {**self.names, variable: value})
                yield inner.substituted(pattern), one, inner

    def condition(self, name: str) -> bool:
        """Return whether a condition of the template holds."""
        return bool(self.value_of(self.body["Conditions"][name]))

    def substituted(self, text: str) -> str:
        """Return a text with the values of its ``${NAME}``."""
        return re.sub(r"\$\{([\w:]+)\}", lambda found: str(self._named(found[1])), text)

    def value_of(self, value: Any) -> Any:
        """Return a value without functions, and without properties that have none."""
        if isinstance(value, list):
            return [each for each in map(self.value_of, value) if each is not _NO_VALUE]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            [(name, argument)] = value.items()
            if name in ("Ref", "Condition") or name.startswith("Fn::"):
                return self._called(name, argument)
        resolved = {name: self.value_of(each) for name, each in value.items()}
        return {name: each for name, each in resolved.items() if each is not _NO_VALUE}

    def _called(self, function: str, argument: Any) -> Any:
        match function:
            case "Ref":
                return self._named(argument)
            case "Condition":
                return self.condition(argument)
            case "Fn::Sub":
                return self.substituted(argument)
            case "Fn::If":
                name, yes, no = argument
                return self.value_of(yes if self.condition(name) else no)
            case "Fn::Equals":
                left, right = map(self.value_of, argument)
                return str(left) == str(right)
            case "Fn::And":
                return all(map(self.value_of, argument))
            case "Fn::Not":
                [inner] = argument
                return not self.value_of(inner)
            case "Fn::FindInMap":
                table, key, attribute = map(self.value_of, argument)
                return self.body["Mappings"][table][key][attribute]
            case _:
                raise NotImplementedError(function)

    def _named(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return _NO_VALUE
        return name if name in self.body["Resources"] else self.names[name]
