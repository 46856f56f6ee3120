"""Deliberate type errors. mypy --strict must report, for each line, the error that the comment on the line contains."""

from collections.abc import MutableSequence
from typing import Any

import anyfn
import numpy as np
from anyfn import Array, List, Map
from generated import library_api, python, testing

# --- The package -----------------------------------------------------------------------------------------------------

anyfn.get_global_func(1)  # E: No overload variant
anyfn.get_global_func("f", allow_missing=True)(1)  # E: "None" not callable
anyfn.register_func("name", 1)  # E: No overload variant
anyfn.load_module(3)  # E: incompatible type "int"
anyfn.no_such_name  # E: Module has no attribute "no_such_name"
anyfn.from_dlpack([1.0])  # E: incompatible type "list[float]"
anyfn.device([])  # E: incompatible type
f = anyfn.get_global_func("f")
f.releases_gil = "yes"  # E: expression has type "str"
f.signature = "{}"  # E: read-only


class Sub(anyfn.PackedFunc):  # E: Cannot inherit from final class
    pass


def containers(array: Array[int], items: List[int], pairs: Map[str, int]) -> None:
    array[0] = 1  # E: Unsupported target for indexed assignment
    array.append(1)  # E: has no attribute "append"
    items.append("x")  # E: incompatible type "str"
    text: str = array[0]  # E: expression has type "int"
    pairs["a"] = 1  # E: Unsupported target for indexed assignment
    pairs[1]  # E: Invalid index type "int"
    sequence: MutableSequence[int] = items
    wrong: MutableSequence[int] = array  # E: Incompatible types in assignment


# --- Registered functions --------------------------------------------------------------------------------------------


@anyfn.register_func("mistakes.half")
def half(x: int) -> float:
    return x / 2


@anyfn.register_func
def shown(x: int, *, width: int = 3) -> str:
    return f"{x:{width}}"


half("x")  # E: incompatible type "str"
half()  # E: Missing positional argument "x"
half(1).upper()  # E: "float" has no attribute "upper"
shown(1, width="x")  # E: incompatible type "str"
shown(1, 2)  # E: Too many positional arguments
third: str = anyfn.register_func("mistakes.third", half)(3)  # E: expression has type "float"

# --- Functions of the registry ---------------------------------------------------------------------------------------

x = np.zeros(3, np.float32)
testing.add_i64("1", 2)  # E: incompatible type "str"
testing.add_i64(1.5, 2)  # E: incompatible type "float"
testing.add_i64(1)  # E: Missing positional argument
testing.add_i64(1, 2, 3)  # E: Too many arguments
testing.add_i64(1, c=2)  # E: Unexpected keyword argument "c"
testing.add_i64(1, a=2)  # E: gets multiple values
testing.add_i64(1, 2).upper()  # E: "int" has no attribute "upper"
result: str = testing.add_f64(1, 2)  # E: expression has type "float"
testing.add_one_if_any(1) + 1  # E: Unsupported operand types
testing.array_sum([1.5])  # E: List item 0 has incompatible type "float"
testing.array_range(3).append(1)  # E: has no attribute "append"
testing.map_sum({1: 1})  # E: Dict entry 0 has incompatible type
testing.saxpy(2.0, [1.0], x)  # E: incompatible type "list[float]"
testing.call_n(1, 2)  # E: expected "Callable[..., Any]"
testing.no_such_function()  # E: Module has no attribute
testing.echo_dtype(1)  # E: incompatible type "int"
testing.str_len.call  # E: has no attribute "call"
testing.counter_value(1)  # E: incompatible type "int"
testing.counter_value(testing.make_point(1, 2))  # E: incompatible type "Point"
testing.make_point(1, 2).z  # E: "Point" has no attribute "z"


async def awaited() -> None:
    wrong: str = await testing.add_i64.call_async(1, 2)  # E: expression has type "int"


# --- Functions of a library ------------------------------------------------------------------------------------------

library_api.add_one("x")  # E: incompatible type "str"
library_api.add_one()  # E: Missing positional argument
library_api.add_one(y=1)  # E: Unexpected keyword argument "y"
library_api.add_two(1)  # E: Module has no attribute
wrong: str = library_api.add_one(1)  # E: expression has type "int"
anything: Any = library_api.echo_any(object())

# --- Functions written in Python -------------------------------------------------------------------------------------

python.repeat(1)  # E: incompatible type "int"
python.repeat("x", times="y")  # E: incompatible type "str"
python.repeat("x", 1, 2)  # E: Too many arguments
python.repeat(times=2)  # E: Missing positional argument "text"
python.lengths("x", "y")  # E: Too many arguments
python.lengths(["x"])["x"].upper()  # E: "int" has no attribute "upper"
python.lengths(["x"])[0]  # E: Invalid index type "int"
python.halves("x")  # E: incompatible type "str"
