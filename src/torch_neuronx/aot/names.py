"""What the arguments of an exported program are called, leaf by leaf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils import _pytree as pytree


def leaf_names(in_spec: pytree.TreeSpec, argument_names: Sequence[str]) -> list[str]:
    """x, batch['ids'], cache[0]: the parameter, then the way into it."""
    args_and_kwargs: Any = pytree.tree_unflatten(list(range(in_spec.num_leaves)), in_spec)
    with_paths, _ = pytree.tree_flatten_with_path(args_and_kwargs)
    return [_name(path, argument_names) for path, _ in with_paths]


def _name(path: tuple[Any, ...], argument_names: Sequence[str]) -> str:
    kind, first, *rest = path
    if kind.idx == 0:
        known = first.idx < len(argument_names)
        head = argument_names[first.idx] if known else f"args[{first.idx}]"
    else:
        head = str(first.key)
    return head + pytree.keystr(tuple(rest))


def argument_names(exported: Any) -> list[str]:
    """Of positional arguments, then of the others, as the program was exported with."""
    signature = exported.module_call_graph[0].signature
    in_spec = signature.in_spec
    positional = in_spec.children()[0].num_children
    names = list(getattr(signature, "forward_arg_names", None) or [])
    if len(names) < positional or len(set(names)) != len(names):
        return [f"args[{i}]" for i in range(positional)]
    return names[:positional]
