"""Passes: functions from programs to programs, and pipelines of them.

>>> import anyfn
>>> from anyfn import te, transform
>>> @transform.prim_func_pass
... def greet(func):
...     print("pass on", func.attrs["global_symbol"])
...     return func
>>> x = te.placeholder((4,), name="x")
>>> func = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1, name="y")], name="f")
>>> greet(func).same_as(func)
pass on f
True
>>> "vectorize" in transform.default_pipeline().names()
True
"""

from . import _compiler
from ._core import Object
from ._object import register_object

_call = _compiler.functions("tir.transform")


@register_object("tir.Pass")
class Pass(Object):
    """A function from programs to programs, with a ``name``; called with a function or module, it gives the new one."""

    def __call__(self, node):
        return self.run(node)

    def __repr__(self):
        return f"<{self.kind} pass {self.name!r}>"


@register_object("tir.Pipeline")
class Pipeline(Object):
    """Passes in the order in which they are applied, each under a name of its own (``simplify``, ``simplify_2``, ..).

    Made of passes, pipelines, and plain functions, which are passes on functions. It is called as a pass is.
    """

    def __init__(self, passes=(), name="pipeline"):
        self.__init_handle_by_constructor__(_call.pipeline, [as_pass(one) for one in passes], name)

    def __call__(self, node):
        return self.run(node)

    def append(self, one):
        """Adds a pass at the end."""
        self.put("after", None, as_pass(one))

    def insert_before(self, name, one):
        """Adds a pass before the one of this name."""
        self.put("before", name, as_pass(one))

    def insert_after(self, name, one):
        """Adds a pass after the one of this name."""
        self.put("after", name, as_pass(one))

    def replace(self, name, one):
        """Puts a pass in the place of the one of this name."""
        self.put("instead", name, as_pass(one))

    def print_before(self, names=None, to=None):
        """From now on prints the program before each pass, or those of these names: by ``to(title, text)``, or to stderr."""
        self.show(False, _names(names), to or _to_stderr)

    def print_after(self, names=None, to=None):
        """From now on prints the program after each pass, or those of these names: by ``to(title, text)``, or to stderr."""
        self.show(True, _names(names), to or _to_stderr)

    def __repr__(self):
        return f"<pipeline {self.name!r}: {', '.join(self.names())}>"


Sequential = Pipeline


def prim_func_pass(function=None, *, name=None):
    """Makes a pass of a function that gets a PrimFunc, and the module that it belongs to if it takes two arguments."""
    return _decorator(function, name, "prim_func")


def module_pass(function=None, *, name=None):
    """Makes a pass of a function that gets an IRModule and returns the new one."""
    return _decorator(function, name, "module")


def as_pass(one):
    """A pass: itself, a pipeline as one, or a plain function as a pass on functions."""
    if isinstance(one, Pass):
        return one
    if isinstance(one, Pipeline):
        return Pipeline.as_pass(one)
    if callable(one):
        return prim_func_pass(one)
    raise TypeError(f"expected a pass, a pipeline or a function but got {type(one).__name__}")


def get(name):
    """A pass of the compiler by its name."""
    return _call.get(name)


def names():
    """Names of all passes of the compiler."""
    return list(_call.names())


def default_pipeline():
    """A new pipeline of the passes that make of a function what code is generated of; change it as you like."""
    return _call.default_pipeline()


def _decorator(function, name, kind):
    if function is None:
        return lambda function: _decorator(function, name, kind)
    if not callable(function):
        raise TypeError(f"expected a function but got {type(function).__name__}")
    name = name or getattr(function, "__name__", type(function).__name__)
    body = function
    if kind == "prim_func" and _takes_one(function):

        def body(func, module):
            return function(func)

    return Pass(name, kind, body)


def _takes_one(function):
    """Whether a function cannot be called with two arguments."""
    import inspect

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    try:
        signature.bind(None, None)
    except TypeError:
        return True
    return False


def _names(names):
    return [names] if isinstance(names, str) else names if names is None else list(names)


def _to_stderr(title, text):
    import sys

    sys.stderr.write(f"# {title}\n{text}\n")
