"""What messages say of installing: a compiled module that is missing is named, and no text names a package of a public index."""

from __future__ import annotations

import importlib
import pathlib
import re
import sys

import pytest

from isolane.installing import extra

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
#: `pip install isolane...`, with any quotes; a path (`./python[plan]`) and a file (`isolane-*.whl`) are right.
INDEX_ENTRY = re.compile(r"pip3? install (?:-[^ ]+ )*['\"]?isolane(?![-_0-9.a-z*]*\.whl)")


def test_admission_without_its_compiled_module_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grpc", reason="the extra `grpc` is not installed")
    monkeypatch.setitem(sys.modules, "isolane_native", None)
    monkeypatch.delitem(sys.modules, "isolane.rpc", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"needs the module isolane_native; run `pip install \./crates/rpc/python`"):
        importlib.import_module("isolane.rpc")


def test_no_text_names_a_package_of_a_public_index() -> None:
    folders = [REPOSITORY / name for name in ("docs", "crates", "python/isolane", "packaging")]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in {".md", ".rs", ".py", ".txt", ".toml"}]
    files += [REPOSITORY / "README.md", REPOSITORY / "python/README.md"]
    assert len(files) > 500
    wrong = [str(path) for path in files if INDEX_ENTRY.search(path.read_text(encoding="utf-8"))]
    assert wrong == []
    assert INDEX_ENTRY.search("pip install 'isolane[plan]'")
    assert not INDEX_ENTRY.search("pip install 'isolane-0.1.0-py3-none-any.whl[plan]'")


def test_every_extra_that_a_message_names_exists() -> None:
    project = tomllib.loads((REPOSITORY / "python/pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = set()
    for path in (REPOSITORY / "python/isolane").rglob("*.py"):
        named |= set(re.findall(r"""extra\(["'](\w+)["']\)""", path.read_text(encoding="utf-8")))
    assert {"plan", "ray", "serve"} <= named <= set(project["optional-dependencies"])
    assert "./python[plan]" in extra("plan")
