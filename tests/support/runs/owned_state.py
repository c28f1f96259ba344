"""Check that only the module of a class assigns to the attributes of its objects (`make lint`).

A class keeps its invariants only if nobody else changes its state. So a module may assign to `self.x` and `cls.x`, and
to `other.x` where it defines the class of `other`. Everywhere else it calls a method. Types are not inferred: a class
of the module counts as that of `other` if it has an attribute of that name and `other` is not a parameter that is
annotated with another class.

The tables below list the exceptions. An entry that is no longer needed is an error too, so the tables only shrink.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from support import ROOT

PACKAGE = ROOT / "sparklog"

MESSAGES = {
    "client/maintenance/maintenance.py": "request.position request.size",
    "client/maintenance/uploads.py": "self._message.data self._message.size_bytes",
    "server/grpc/groups.py": "message.coordinator",
}
"""Protobuf messages: they have no methods of ours."""

LIBRARIES = {
    "client/diagnosis.py": "context.check_hostname context.verify_mode",
    "client/loop_thread.py": "task._log_destroy_pending",
    "docs/commands.py": "context.terminal_width",
    "base/pattern.py": "_OPTIONS.log_errors _OPTIONS.max_mem _OPTIONS.never_capture",
    "jobs/session.py": (
        "SparkContext._active_spark_context SparkContext._gateway SparkContext._jvm SparkSession._instantiatedSession"
    ),
    "records/decoding.py": "array.flags.writeable",
    "records/encoding.py": "array.flags.writeable",
    "records/kernels.py": "numba.config.CACHE_DIR",
    "records/key_map.py": "_NO_VERSIONS.flags.writeable view.flags.writeable",
    "records/rewriting.py": "kept.flags.writeable",
    "server/kafka/sasl.py": "Salt.MIN_LENGTH",
    "server/tls.py": "context.maximum_version context.minimum_version context.options context.verify_mode",
    "testing/sim/command.py": "sys.unraisablehook",
    "testing/sim/cluster.py": "logger.propagate",
    "testing/sim/run.py": "uuid.uuid4",
}
"""Objects of libraries, which are set up in this way."""

ALLOWED: tuple[dict[str, str], ...] = (MESSAGES, LIBRARIES)
"""What a module of sparklog/ may assign to beside its own state."""


def foreign_assignments(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and target of each assignment to an attribute whose owner the module does not define."""
    tree = ast.parse(source)
    attributes = {node.name: _attributes(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    everywhere = set().union(*attributes.values())
    for target, parameters in _targets(tree, {}):
        owner = target.value
        if isinstance(owner, ast.Name):
            if owner.id in ("self", "cls"):
                continue
            if owner.id in parameters and parameters[owner.id] in attributes:
                continue
            if owner.id not in parameters and target.attr in everywhere:
                continue
        elif target.attr in everywhere:
            continue
        yield target.lineno, ast.unparse(target)


def _targets(node: ast.AST, parameters: dict[str, str]) -> Iterator[tuple[ast.Attribute, dict[str, str]]]:
    """Yield each attribute that is assigned or deleted, with the annotated parameters around it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        parameters = parameters | {arg.arg: _class_of(arg.annotation) for arg in given if arg.annotation}
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
        yield node, parameters
    for child in ast.iter_child_nodes(node):
        yield from _targets(child, parameters)


def _class_of(annotation: ast.expr) -> str:
    """Return the name of the annotated class, without its type arguments and `| None`."""
    if isinstance(annotation, ast.BinOp):
        return _class_of(annotation.left)
    if isinstance(annotation, ast.Subscript):
        return _class_of(annotation.value)
    return ast.unparse(annotation).rpartition(".")[2]


def _attributes(cls: ast.ClassDef) -> set[str]:
    """Return the attributes that a class declares, or assigns on `self`."""
    found = {
        node.target.id for node in cls.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for node in ast.walk(cls):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            found.add(node.attr)
    return found


def main() -> int:
    """Print what the lists do not allow, and what they allow in vain; return the exit status."""
    errors = []
    unused = {(name, target) for table in ALLOWED for name, targets in table.items() for target in targets.split()}
    allowed = frozenset(unused)
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        if name.startswith("v1/"):
            continue
        for line, target in foreign_assignments(path.read_text()):
            unused.discard((name, target))
            if (name, target) not in allowed:
                errors.append(f"sparklog/{name}:{line}: {target} is state of another module's class: call its method")
    errors += [f"sparklog/{name}: take {target} off the list" for name, target in sorted(unused)]
    print(*errors, sep="\n", end="\n" if errors else "", file=sys.stderr)
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
