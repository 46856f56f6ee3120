"""Runs operations on objects of the types in ``cpp_types.cc``, so that the results of two runtimes can be compared.

The operations are called as global functions: by ``results(anyfn, path)``, or with the package tvm_ffi by running this file
as ``cpp_types_ops.py LIBRARY``.
"""

import json
import sys


def results(lib, path):
    """Returns the results of all cases as strings, by the name of the case."""
    module = lib.load_module(path)
    get = lib.get_global_func
    new = get("ffi.MakeObjectFromPackedArgs")
    show, equal, hash_of = get("ffi.ReprPrint"), get("ffi.StructuralEqual"), get("ffi.StructuralHash")
    mismatch, copy = get("ffi.GetFirstStructuralMismatch"), get("ffi.DeepCopy")
    save, load = get("ffi.ToJSONGraphString"), get("ffi.FromJSONGraphString")

    def make(key, /, **fields):
        return new("cpp." + key, *(part for pair in fields.items() for part in pair))

    def add(a, b, line=0):
        return make("Add", lhs=a, rhs=b, line=line)

    def function(names, comment="", swap=False, late=False):
        """Returns a function object whose variables have the given names.

        If ``late`` is set, the type of one variable refers to another variable.
        """
        first = make("Var", name=names[0])
        second = make("Var", name=names[1], type=first if late else 3)
        bound = make("Var", name=names[2])
        body = make("Let", var=bound, value=add(first, second), body=add(bound, first))
        if swap:
            body = make("Let", var=bound, value=add(second, first), body=add(bound, first))
        params = [second, first] if late == "swapped" else [first, second]
        return make("Func", params=params, body=body, comment=comment, attrs={"n": 1, "m": [names[0] == "x", 2.5]})

    shared = make("Const", value=5)
    values = {
        "const": shared,
        "function": function("xyz"),
        "renamed": function("abc", comment="a comment"),
        "swapped": function("xyz", swap=True),
        "late": function("xyz", late=True),
        "late renamed": function("abc", late=True),
        "block": make("Block", items=[shared, shared, "a text that is longer", None, 1.5, b"bytes"], weight=2, flag=True),
        "block unshared": make("Block", items=[shared, make("Const", value=5), "a text that is longer", None, 1.5, b"bytes"]),
        "custom": make("Custom", key=[1, "x"], label="one"),
        "custom other": make("Custom", key=[1, "x"], label="two"),
        "custom smaller": make("Custom", key=[0, "x"], label="one"),
        "in a list": [make("Custom", key=shared, label=shared), make("Const", value=-1, scale=0.25)],
        "enums": [module["colour"]("green"), module["level"](-3), module["unit"]("metre"), module["colour"]("green")],
    }
    found = {}

    def case(name, function, *args):
        try:
            value = function(*args)
        except Exception as error:
            value = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        found[name] = str(value)

    def changed(value, skipped):
        left, right = mismatch(value, skipped, False, False)
        return [str(show(part)) for part in (left, right)]

    for name, value in values.items():
        case(f"show {name}", show, value)
        # The hash of undefined variables and of unique objects is their address.
        for option in (False, True):
            if name != "enums":
                case(f"hash {name} {option}", hash_of, value, option, False)
        case(f"recursive hash {name}", get("ffi.RecursiveHash"), value)
        case(f"save {name}", save, value, None)
        case(f"loaded {name}", lambda: equal(load(save(value, None)), value, True, False))
        case(f"saved again {name}", lambda: save(load(save(value, None)), None) == save(value, None))
        case(f"copy {name}", lambda: show(copy(value)))
        case(f"equal copy {name}", lambda: equal(copy(value), value, False, False))
        for other, against in values.items():
            case(f"equal {name} {other}", equal, value, against, False, False)
            case(f"equal free {name} {other}", equal, value, against, True, False)
            case(f"recursive {name} {other}", get("ffi.RecursiveEq"), value, against)
            if not equal(value, against, False, False):
                case(f"mismatch {name} {other}", changed, value, against)
    case("less", get("ffi.RecursiveLt"), values["custom"], values["custom smaller"])
    case("copy handle", copy, module["handle"](3))
    case("save handle", save, module["handle"](3), None)
    case("show handle", show, module["handle"](3))
    case("make handle", make, "Handle")
    case("same enum", lambda: module["colour"]("red").same_as(module["colour"]("red")))
    case("no enum", module["colour"], "blue")
    case("loaded enum", lambda: load(save(values["enums"], None))[0].same_as(module["colour"]("green")))
    case("depth", lambda: add(add(shared, shared), shared).depth())
    case("missing", make, "Add")
    case("wrong", lambda: make("Const", value="x"))
    case("too large", lambda: make("Const", value=2**40).value)

    seen = []

    def visit(value):
        seen.append(str(show(value))[:40])

    def bump(value):
        return make("Const", value=value.value + 1) if value.value == 5 else value

    index = get("ffi.GetRegisteredTypeKeys") and type_index(lib, "cpp.Const")
    for name, value in values.items():
        for order in (0, 1):
            seen.clear()
            case(f"walk {name} {order}", get("ffi.StructuralWalk"), value, [(64, visit)], [], order)
            found[f"walked {name} {order}"] = repr(seen)
        case(f"map {name}", lambda: show(get("ffi.StructuralMap")(value, [(index, bump)], [], 1)))
        case(f"mutate {name}", lambda: show(get("ffi.StructuralMutate")(value, [])))
    return found


def type_index(lib, key):
    if hasattr(lib, "type_info"):
        return lib.type_info(key).index
    return lib.core._object_type_key_to_index(key)


if __name__ == "__main__":
    import tvm_ffi

    json.dump(results(tvm_ffi, sys.argv[1]), sys.stdout)
