"""Prints, compares, hashes, rewrites, saves and loads one graph of nodes that are defined in Rust, C++ and Python.

    run.py PLUGIN_IN_RUST PLUGIN_IN_CPP

No language knows the types of the others. All operations are derived from the reflected fields, so they work for all types.
"""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import anyfn

COUNT = 100_000


@anyfn.object("graph.Leaf", structural="tree")
class Leaf(anyfn.Object):
    """A number with a name."""

    name: str
    value: float = 0.0


def timed(what, function, *args):
    start = time.perf_counter()
    result = function(*args)
    shown = f"{result}" if isinstance(result, (bool, int)) else ""
    print(f"{what:24} {(time.perf_counter() - start) * 1e9 / COUNT:8.0f} ns per node  {shown}")
    return result


def make(scale, total):
    """Returns a tree with leaves from Python. Nodes from Rust scale every second leaf, and nodes from C++ add pairs of nodes.
    """
    leaves = [Leaf(f"leaf {i}", float(i)) for i in range(COUNT * 2 // 5)]
    level = [scale(leaf) if i % 2 else leaf for i, leaf in enumerate(leaves)]
    while len(level) > 1:
        pairs = [total(*level[i : i + 2]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) // 2 * 2 :]
    return level[0]


def main(rust, cpp):
    # The libraries register their types.
    modules = [anyfn.load_module(rust), anyfn.load_module(cpp)]
    for key in ("graph.Scale", "graph.Sum", "graph.Leaf", "graph.TensorNode"):
        print(anyfn.type_info(key))

    # Fields are attributes without any Python code for the types. `dir` and the stubs of `anyfn stubs` list them.
    x = anyfn.get_global_func("graph.placeholder")((3, 4), name="x")
    print(x.op.name, x.shape, x.dtype)
    assert {"shape", "dtype", "op", "value_index"} <= set(dir(x)) and "name" in dir(x.op)

    @anyfn.register_object("graph.Scale")
    class Scale(anyfn.Object):
        """Graph node that multiplies its input by a factor. The type is defined in Rust."""

    @anyfn.register_object("graph.Sum")
    class Sum(anyfn.Object):
        """Graph node that adds its two inputs. The type is defined in C++."""

    small = Sum(Scale(Leaf("x", 1.5), 3.0), Leaf("y"))
    print(small)
    assert small.lhs.input.name == "x" and small.lhs.factor == 3.0

    graph, twin = timed("make two", lambda: (make(Scale, Sum), make(Scale, Sum)))
    text = timed("print", repr, graph)
    assert text.count("graph.Leaf") + text.count("Leaf(") > 0
    assert timed("structural equality", anyfn.structural_equal, graph, twin)
    assert timed("structural hash", anyfn.structural_hash, graph) == anyfn.structural_hash(twin)

    def double(leaf):
        return Leaf(leaf.name, leaf.value * 2)

    doubled = timed("rewrite", anyfn.structural_map, graph, (Leaf, double))
    assert not anyfn.structural_equal(graph, doubled)
    print("first difference at", anyfn.get_first_structural_mismatch(small, Sum(Scale(Leaf("x"), 3.0), Leaf("y"))))

    with TemporaryDirectory() as folder:
        path = Path(folder) / "graph.json"
        timed("save", lambda: anyfn.save_json(graph, path))
        loaded = timed("load", lambda: anyfn.load_json(path=path))
    assert anyfn.structural_equal(graph, loaded)
    timed("all of it in Rust", anyfn.get_global_func("graph.check"), graph)
    print("right")
    return modules


if __name__ == "__main__":
    main(*sys.argv[1:])
