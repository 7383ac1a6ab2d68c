"""One name means one thing: no public name is defined in two modules; and what `waycode` itself offers."""

import ast
from collections import defaultdict
from pathlib import Path

import waycode

SOURCE = Path(waycode.__file__).parent
# Geometry exists once per backend, with the same names; every source module has a `read`.
TWINS = {"scene/geometry.py", "scene/geometry_torch.py"}
EVERY_SOURCE_HAS = {"read"}


def public_names(path: Path) -> set[str]:
    """Classes, functions, type aliases and constants that a module defines at its top level."""
    names: set[str] = set()
    for part in ast.parse(path.read_text()).body:
        if isinstance(part, ast.ClassDef | ast.FunctionDef):
            names.add(part.name)
        elif isinstance(part, ast.Assign):
            names |= {target.id for target in part.targets if isinstance(target, ast.Name)}
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            names.add(part.target.id)
    return {name for name in names if not name.startswith("_")}


def test_no_public_name_means_two_things() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for name in public_names(path):
            homes[name].append(path.relative_to(SOURCE).as_posix())
    clashes = {
        name: found
        for name, found in homes.items()
        if len(found) > 1 and not set(found) <= TWINS and name not in EVERY_SOURCE_HAS
    }
    assert clashes == {}


def test_dir_lists_the_public_names() -> None:
    assert set(waycode.__all__) <= set(dir(waycode))
    for name in waycode.__all__:
        assert getattr(waycode, name) is not None
