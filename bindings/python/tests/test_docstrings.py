"""Tests of the package's documentation: every public name has a docstring, and the examples run."""

import doctest
import importlib
import inspect
from pathlib import Path

import anyfn
import anyfn.testing
import anyfn.typing
import pytest

pytestmark = pytest.mark.compiler  # All modules are imported.
# Excludes `anyfn.testing`, whose attributes are functions of the sample library.
MODULES = sorted(path.stem for path in Path(anyfn.__file__).parent.glob("*.py") if path.stem not in ("__main__", "testing"))


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = anyfn if name == "__init__" else importlib.import_module("anyfn." + name)
    failed = doctest.testmod(module).failed
    # Examples register functions and classes.
    for function in anyfn.list_global_func_names():
        if function.startswith("doc."):
            anyfn.remove_global_func(function)
    anyfn._core.register_class(anyfn._core.type_index("testing.Point"), anyfn.Object)
    assert failed == 0


def test_there_are_examples():
    modules = [importlib.import_module("anyfn." + name) for name in MODULES if name != "__init__"]
    found = [test.name for module in (anyfn, *modules) for test in doctest.DocTestFinder().find(module) if test.examples]
    assert len(found) >= 10, found


def documented():
    for name in anyfn.__all__:
        value = getattr(anyfn, name)
        yield name, value
        if isinstance(value, type):
            # Inherited members of `Object` are included once.
            yield from ((f"{name}.{key}", member) for key, member in vars(value).items() if not key.startswith("_"))
    for name in ("SupportsDLPack", "IntLike", "FloatOfNumPy", "packed"):
        yield "typing." + name, getattr(anyfn.typing, name)


@pytest.mark.parametrize(("name", "value"), [pytest.param(*pair, id=pair[0]) for pair in documented()])
def test_public_names_are_documented(name, value):
    text = inspect.getdoc(value) if isinstance(value, type) else value.__doc__
    assert text and text.strip(), name
    if isinstance(value, type):
        assert value.__doc__, f"{name} has only the documentation of its base"


def test_the_package_tells_of_all_its_names():
    missing = [name for name in anyfn.__all__ if name not in anyfn.__doc__]
    assert not missing
    assert "_core" not in anyfn.__doc__


def test_functions_of_a_prefix_keep_their_documentation():
    assert anyfn.testing.array_sum.__doc__ == "Returns the sum of integers."
    assert anyfn.testing.array_sum.__name__ == "array_sum"
