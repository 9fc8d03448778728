"""Reads the project's sources and says, rule by rule, which line breaks one. Imports none of them."""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVICES = ("coordinator", "stage_worker", "dataloader_svc")
FOLDERS = (*SERVICES, "proto", "tests", "benchmarks")
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
UNSAFE_MODULES = (
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "shelve",
    "marshal",
    "torch.load",
    "os.system",
    "os.popen",
)
FORKING_MODULES = (
    "multiprocessing",
    "torch.multiprocessing",
    "concurrent.futures.ProcessPoolExecutor",
    "pty",
    "os.fork",
    "os.forkpty",
)
FORKING_CALLS = {"os.fork", "os.forkpty", "futures.ProcessPoolExecutor", "concurrent.futures.ProcessPoolExecutor"}
UNSAFE_CALLS = {"eval", "exec", "torch.load", "os.system", "os.popen"}
PICKLING_COLLECTIVES = {
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
}
UNSAFE_KEYWORDS = {"shell", "allow_pickle"}
MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(?:work|home|root|Users|tmp/env)/")


@dataclass(frozen=True)
class Import:
    """One imported name, dotted: ``from a import b`` imports ``a.b``."""

    line: int
    name: str

    def is_in(self, *packages: str) -> bool:
        """Whether it is one of ``packages`` or lies in one."""
        return any(self.name == package or self.name.startswith(f"{package}.") for package in packages)


@dataclass(frozen=True)
class Source:
    """One Python file: its path below the root, and its text."""

    path: str
    text: str

    @property
    def module(self) -> str:
        """Dotted name, as others import it."""
        parts = self.path.removesuffix(".py").removeprefix("proto/").split("/")
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def num_lines(self) -> int:
        """Lines of text."""
        return len(self.text.splitlines())

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.text, filename=self.path)

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """All imports, also those inside functions and by ``import_module("name")``."""
        return tuple(self._find_imports())

    def _find_imports(self) -> Iterator[Import]:
        package = self.module.split(".") if self.path.endswith("__init__.py") else self.module.split(".")[:-1]
        for node in ast.walk(self.tree):
            match node:
                case ast.Import(names=names):
                    yield from (Import(node.lineno, alias.name) for alias in names)
                case ast.ImportFrom(module=module, names=names, level=level):
                    above = package[: len(package) - level + 1] if level else []
                    origin = ".".join([*above, *([module] if module else [])])
                    yield from (Import(node.lineno, f"{origin}.{alias.name}") for alias in names)
                case ast.Call(args=[ast.Constant(value=str(name)), *_]):
                    if dotted(node.func) in {"__import__", "import_module", "importlib.import_module"}:
                        yield Import(node.lineno, name)


def project_sources() -> tuple[Source, ...]:
    """Return all Python files that people write; generated stubs are not among them."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return tuple(
        Source(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
        for path in paths
        if not re.search(r"_pb2(_grpc)?\.py$", path.name)
    )


def is_within(*prefixes: str) -> Callable[[Source], bool]:
    """Return whether a source is one of the modules ``prefixes`` or lies below one."""
    return lambda source: any(source.module == p or source.module.startswith(f"{p}.") for p in prefixes)


def forbidden_imports(sources: Iterable[Source], where: Callable[[Source], bool], packages: Iterable[str]) -> list[str]:
    """Return imports of ``packages`` in sources of ``where``, and in all of the project that those import."""
    known = {source.module: source for source in sources}
    packages = tuple(packages)
    pending = [(source, "") for source in known.values() if where(source)]
    seen = {source.module for source, _ in pending}
    broken = []
    for source, origin in pending:  # grows as it goes
        for found in source.imports:
            place = f"{source.path}:{found.line}"
            if found.is_in(*packages):
                broken.append(f"{place} imports {found.name}{origin}")
            for module in modules_of(found.name, known):
                if module not in seen:
                    seen.add(module)
                    pending.append((known[module], f", which is imported by {place}{origin}"))
    return broken


def modules_of(name: str, known: Iterable[str]) -> list[str]:
    """Return the project's modules that importing ``name`` runs: its packages and itself."""
    parts = name.split(".")
    prefixes = [".".join(parts[: end + 1]) for end in range(len(parts))]
    known = set(known)
    return [prefix for prefix in prefixes if prefix in known]


def imports_outside(sources: Iterable[Source], where: Callable[[Source], bool], allowed: Iterable[str]) -> list[str]:
    """Return imports in sources of ``where`` of anything but the standard library and ``allowed``."""
    allowed = (*sys.stdlib_module_names, *allowed)
    return [
        f"{source.path}:{found.line} imports {found.name}"
        for source in sources
        if where(source)
        for found in source.imports
        if not found.is_in(*allowed)
    ]


def forbidden_module_names(sources: Iterable[Source]) -> list[str]:
    """Return modules and packages whose name says nothing about what is in them."""
    return [
        f"{source.path}:1 is called {part}"
        for source in sources
        for part in source.module.split(".")
        if FORBIDDEN_NAMES & set(part.lower().split("_"))
    ]


def files_longer_than(limit: int, sources: Iterable[Source], where: Callable[[Source], bool]) -> list[str]:
    """Return sources of ``where`` with more than ``limit`` lines."""
    return [
        f"{source.path}:{limit + 1} is past the limit of {limit} lines, it has {source.num_lines}"
        for source in sources
        if where(source) and source.num_lines > limit
    ]


def unsafe_code(sources: Iterable[Source]) -> list[str]:
    """Return what can run code that came as data: pickles, eval, shells."""
    broken = []
    for source in sources:
        broken += [f"{source.path}:{i.line} imports {i.name}" for i in source.imports if i.is_in(*UNSAFE_MODULES)]
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.Call):
                continue
            called = dotted(node.func)
            if called in UNSAFE_CALLS or called.rpartition(".")[2] in PICKLING_COLLECTIVES:
                broken.append(f"{source.path}:{node.lineno} calls {called}")
            broken += [
                f"{source.path}:{node.lineno} passes {keyword.arg}"
                for keyword in node.keywords
                if keyword.arg in UNSAFE_KEYWORDS
                and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
            ]
    return broken


def forking_code(sources: Iterable[Source]) -> list[str]:
    """Return what can make a child by fork, and so with locks that threads of its parent hold."""
    broken = []
    for source in sources:
        broken += [f"{source.path}:{i.line} imports {i.name}" for i in source.imports if i.is_in(*FORKING_MODULES)]
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.Call):
                continue
            if (called := dotted(node.func)) in FORKING_CALLS:
                broken.append(f"{source.path}:{node.lineno} calls {called}")
            if any(keyword.arg == "preexec_fn" for keyword in node.keywords):
                broken.append(f"{source.path}:{node.lineno} passes preexec_fn")
    return broken


def matching_lines(texts: Iterable[tuple[str, str]], pattern: re.Pattern[str]) -> list[str]:
    """Return the lines of ``(path, text)`` pairs in which ``pattern`` is found."""
    return [
        f"{path}:{number} says {found.group()!r}"
        for path, text in texts
        for number, line in enumerate(text.splitlines(), start=1)
        for found in pattern.finditer(line)
    ]


def dotted(node: ast.expr) -> str:
    """Return ``a.b.c`` for a name or an attribute of one, else the empty text."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            owner = dotted(value)
            return f"{owner}.{attr}" if owner else ""
    return ""
