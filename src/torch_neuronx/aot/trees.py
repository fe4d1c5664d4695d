"""Pytree structures as text. Reading one constructs nothing but containers that are known here."""

from __future__ import annotations

import json
from typing import Any, Final

from torch.utils import _pytree as pytree

from torch_neuronx.aot.errors import BundleError

# Its context names a function to import and call.
_REFUSED: Final = frozenset({"collections.defaultdict"})


def dumps(spec: pytree.TreeSpec, what: str) -> str:
    """Raises BundleError for a container that has no form on disk."""
    try:
        text = pytree.treespec_dumps(spec)
        loads(text, what)
    except (NotImplementedError, TypeError) as error:
        raise BundleError(f"the structure of the {what} cannot be written: {error}") from error
    return text


def loads(text: str, what: str) -> pytree.TreeSpec:
    """Raises BundleError for what is not such a text, or names a container this process does not know."""
    try:
        protocol, tree = json.loads(text)
        if protocol != 1:
            raise ValueError(f"protocol {protocol}")
        _check(tree)
        return pytree.treespec_loads(text)
    except NotImplementedError as error:
        raise BundleError(
            f"the {what} have a container that this process does not know: {error} Import the package that defines it "
            "before loading."
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, AssertionError) as error:
        raise BundleError(f"the structure of the {what} cannot be read: {error}") from error


def _check(node: Any) -> None:
    if not isinstance(node, dict) or node.keys() != {"type", "context", "children_spec"}:
        raise ValueError("a node without type, context and children")
    kind, context = node["type"], node["context"]
    if kind in _REFUSED:
        raise ValueError(f"{kind} is not shipped, because reading it calls what its text names. Use a dict.")
    if "__enum__" in str(json.loads(context) if _is_json(context) else context):
        raise ValueError("an enumeration as a key, whose module would be imported")
    if not isinstance(node["children_spec"], list):
        raise ValueError("children that are no list")
    for child in node["children_spec"]:
        _check(child)


def _is_json(context: Any) -> bool:
    try:
        json.loads(context)
    except (ValueError, TypeError):
        return False
    return True
