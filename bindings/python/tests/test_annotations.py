"""Tests of the annotations in the package's Python functions, which ``help``, editors and type checkers read.

The modules that ``import anyfn`` loads quote them, since they must not import another module, not even ``__future__``. What
only type checkers need, such as overloads and the members of native types, is in blocks ``if TYPE_CHECKING:``. A module with
a stub is read from there instead, so the annotations of a function must be the same in both.
"""

import ast
import inspect
import pydoc
import re
from pathlib import Path

import anyfn
import pytest
from anyfn import rpc, te, tir, transform

PACKAGE = Path(anyfn.__file__).parent
STUBS = sorted(path.stem for path in PACKAGE.glob("*.pyi") if path.with_suffix(".py").exists())
SOURCES = sorted(path.stem for path in PACKAGE.glob("*.py"))


def functions(module, suffix):
    """Returns the definitions of the functions and methods in a file of the package, as a list for each qualified name."""
    found = {}

    def visit(body, prefix):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.setdefault(prefix + node.name, []).append(node)
            elif isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")

    visit(ast.parse((PACKAGE / f"{module}{suffix}").read_text(encoding="utf-8")).body, "")
    return found


def annotations(function):
    """Returns the annotations of a function's parameters and of its result as source, or None for a missing one.

    The key ``return`` contains the annotation of the result.
    """

    def text(annotation):
        if annotation is None:
            return None
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = ast.parse(annotation.value, mode="eval").body
        return ast.unparse(annotation)

    given = function.args
    params = [(param.arg, param) for param in (*given.posonlyargs, *given.args)]
    params += [(f"*{param.arg}", param) for param in [given.vararg] if param]
    params += [(param.arg, param) for param in given.kwonlyargs]
    params += [(f"**{param.arg}", param) for param in [given.kwarg] if param]
    return {**{name: text(param.annotation) for name, param in params}, "return": text(function.returns)}


def is_public(name):
    """Returns true if no part of a qualified name is private; special methods are public."""
    return not any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def test_each_stub_is_needed():
    # A further stub repeats what the source says. The classes and functions of `tir` are made in loops, and its stub is
    # partly generated.
    assert STUBS == ["tir"]
    assert {path.stem for path in PACKAGE.glob("*.pyi")} - {*STUBS} == {"_core"}


def test_stubs_agree_with_the_source():
    compared, differences = 0, {}
    for module in STUBS:
        declared, defined = functions(module, ".pyi"), functions(module, ".py")
        for name in declared.keys() & defined.keys():
            [in_stub], [in_source] = declared[name], defined[name]
            # The order of parameters is compared, too.
            pair = list(annotations(in_stub).items()), list(annotations(in_source).items())
            compared += 1
            if pair[0] != pair[1]:
                differences[f"{module}.{name}"] = pair
    assert not differences, differences
    # Guards against a comparison that finds no functions.
    assert compared > 60, compared


def aliases(statements):
    """Returns the values that statements assign to names, as source from which single quotation marks are removed."""
    found = {}
    for node in statements:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = ast.unparse(node.value).replace("'", "")
    return found


def test_aliases_agree_with_the_source():
    compared, differences = 0, {}
    for module in STUBS:
        declared = aliases(ast.parse((PACKAGE / f"{module}.pyi").read_text(encoding="utf-8")).body)
        for node in ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8")).body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                for name, text in aliases(node.body).items():
                    compared += name in declared
                    if declared.get(name, text) != text:
                        differences[f"{module}.{name}"] = declared[name], text
    assert not differences, differences
    assert compared >= 3, compared


@pytest.mark.parametrize("module", SOURCES)
def test_public_functions_are_annotated(module):
    missing = []
    for name, [function] in functions(module, ".py").items():
        if is_public(name):
            # The object or class of a method has no annotation.
            found = annotations(function).items()
            missing += [f"{name}: {param}" for param, text in found if text is None and param not in ("self", "cls")]
    assert not missing, missing


def too_early(source):
    """Returns the classes that unquoted annotations use before the end of the class, each with the line of the use.

    Some type checkers evaluate annotations like expressions, unless they are quoted or ``annotations`` is imported from
    ``__future__``. They find no such name and let the type be any, without an error in the user's code.
    """
    tree = ast.parse(source)
    if any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body):
        return []
    ends = {node.name: node.end_lineno for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = []
    for node in ast.walk(tree):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            names = [part for part in ast.walk(annotation) if isinstance(part, ast.Name)] if annotation else []
            found += [f"{name.id}:{name.lineno}" for name in names if name.lineno <= ends.get(name.id, 0)]
    return found


@pytest.mark.parametrize("module", SOURCES)
def test_names_of_later_classes_are_quoted(module):
    assert not too_early((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))


def test_an_unquoted_name_is_found():
    source = "class A:\n    if TYPE_CHECKING:\n        b: B\n        def f(self, a: {}) -> 'B': ...\n"
    source += "class B: ...\ndef g(a: A) -> B: ...\n"
    assert too_early(source.format("list[A]")) == ["B:3", "A:4"]
    assert too_early(source.format("'list[A]'")) == ["B:3"]
    assert too_early("from __future__ import annotations\n" + source.format("A")) == []


def test_a_missing_annotation_is_found():
    source = 'def f(a: "int", *args: str, b: "Optional[str]" = None, c=1, **more) -> None: ...'
    [function] = ast.parse(source).body
    assert annotations(function) == {
        "a": "int", "*args": "str", "b": "Optional[str]", "c": None, "**more": None, "return": "None"
    }  # fmt: skip
    assert is_public("Session.__enter__") and not is_public("_Operation.__enter__") and not is_public("Session._close")


@pytest.mark.parametrize("module", [te, tir, transform, rpc], ids=lambda module: module.__name__)
def test_signatures_are_annotated(module):
    """Checks that all public functions have annotations, including functions that a loop creates, such as ``tir.exp``."""
    count = 0
    for name, function in vars(module).items():
        if inspect.isfunction(function) and not name.startswith("_"):
            signature = inspect.signature(function)
            values = [signature.return_annotation, *(param.annotation for param in signature.parameters.values())]
            assert inspect.Signature.empty not in values, f"{name}{signature}"
            count += 1
    assert count >= 5


def test_inspect():
    def annotated(function):
        signature = inspect.signature(function)
        params = {name: param.annotation for name, param in signature.parameters.items() if name != "self"}
        return {**params, "return": signature.return_annotation}

    assert annotated(te.reduce_axis) == {"dom": "Union[tuple[_Operand, _Operand], _Operand]", "name": "str", "return": "IterVar"}
    assert annotated(tir.exp) == {"x": "_Operand", "return": "PrimExpr"}
    assert annotated(tir.Schedule.reorder) == {"loops": "Union[Var, Sequence[Var]]", "more": "Var", "return": "None"}
    assert annotated(transform.Pipeline.insert_after) == {"name": "str", "one": "_PassLike", "return": "None"}
    empty = {"shape": "Union[int, Iterable[int]]", "dtype": "Any", "device": "Any", "return": "Tensor"}
    assert annotated(rpc.Session.empty) == empty
    assert annotated(anyfn.zeros)["shape"] == "Union[int, ShapeLike]"
    assert inspect.signature(te.placeholder).parameters["dtype"].default == "float32"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (te.create_prim_func, "create_prim_func(args: Iterable[Union[Tensor, Var]], name: str = main) -> PrimFunc"),
        (tir.round, "round(x: _Operand) -> PrimExpr"),
        (tir.Schedule, "fuse(self, loops: Union[Var, Sequence[Var]], *more: Var) -> Var"),
        (transform.get, "get(name: str) -> Pass"),
        (rpc.Session, "empty(self, shape: Union[int, Iterable[int]], dtype: Any = float32, device: Any = None) -> Tensor"),
        (rpc.make_key, "make_key(name: str) -> str"),
        (anyfn.register_alias, "register_alias(old: str, new: str, *, of: Union[None, str, type[Object]] = None) -> None"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_help(value, shown):
    # Python versions differ in the quotation marks around annotations and in line breaks. Python 3.13 ends the last
    # parameter of a signature of several lines with a comma; in a class, each line begins with a bar.
    def compact(text):
        text = re.sub(r"^ \|", "", text, flags=re.MULTILINE)
        return "".join(text.replace("'", "").split()).replace(",)", ")")

    assert compact(shown) in compact(pydoc.plain(pydoc.render_doc(value)))
