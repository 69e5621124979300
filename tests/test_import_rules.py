"""The floors of the house, read from the imports: what may depend on what."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = {"corpus_index": 1, "environments": 2, "rewards": 3, "training": 4, "evaluation": 5, "examples": 6}
LIGHT = ("corpus_index", "environments", "rewards")
CLUSTER_ONLY = ("environments/nemo_rl.py", "environments/nemo_rl_rows.py", "training/engines/nemo_rl/")
"""Files, and folders with all below them."""
MAX_LINES = 400


def modules(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under ``if TYPE_CHECKING:``, which never run."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield child
        yield from nodes(child)


def imports(path: Path, *, typing: bool = True) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything imported anywhere in the file; ``from a import b`` gives ``a.b``.

    ``typing`` False leaves out what only a type checker imports.
    """
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for node in ast.walk(tree) if typing else nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def all_imports(*packages: str, typing: bool = True) -> Iterator[tuple[str, str, str]]:
    """Package, ``file:line`` and imported name."""
    for path in modules(*packages):
        name = path.relative_to(ROOT).as_posix()
        for number, imported in imports(path, typing=typing):
            yield name.split("/")[0], f"{name}:{number}", imported


def test_the_rules_see_the_code() -> None:
    assert {package for package, _, _ in all_imports(*FLOORS)} >= {"environments", "rewards", "training", "evaluation"}


def test_imports_run_downwards() -> None:
    wrong = [
        f"{where} imports {imported}"
        for package, where, imported in all_imports(*FLOORS)
        if (other := imported.split(".")[0]) in FLOORS and other != package and FLOORS[other] >= FLOORS[package]
    ]
    assert wrong == []


def test_only_the_cluster_modules_know_the_cluster() -> None:
    wrong = [
        f"{where} imports {imported}"
        for _, where, imported in all_imports(*FLOORS)
        if imported.split(".")[0] in {"nemo_rl", "ray"} and not where.startswith(CLUSTER_ONLY)
    ]
    assert wrong == []


def test_the_lower_floors_name_no_model_library() -> None:
    wrong = [
        f"{where} imports {imported}"
        for _, where, imported in all_imports(*LIGHT, typing=False)
        if imported.split(".")[0] in {"torch", "transformers"} and not where.startswith(CLUSTER_ONLY)
    ]
    assert wrong == []


def test_importing_the_lower_floors_loads_no_model_library() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in modules(*LIGHT)
        if path.name != "__main__.py" and not path.relative_to(ROOT).as_posix().startswith(CLUSTER_ONLY)
    ]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print([name for name in ('torch', 'transformers', 'ray', 'nemo_rl') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", sorted(FLOORS))
def test_modules_stay_short(package: str) -> None:
    long = {
        path.relative_to(ROOT).as_posix(): count
        for path in modules(package)
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    }
    assert long == {}


def test_the_reader_of_imports_resolves_relative_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / "rewards" / "deep" / "one.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "from . import a\nfrom .b import c\nfrom ..d import e\nimport f.g\ndef h():\n    from i import j\n"
        "if TYPE_CHECKING:\n    import k\n"
    )
    running = {"rewards.deep.a", "rewards.deep.b.c", "rewards.d.e", "f.g", "i.j"}
    assert {name for _, name in imports(file)} == running | {"k"}
    assert {name for _, name in imports(file, typing=False)} == running
