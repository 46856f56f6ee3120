"""Correct use of generated stubs, which mypy --strict accepts."""

import ctypes
from typing import Any, Optional

import anyfn
import numpy as np
from generated import library_api, python, testing

number: int = testing.add_i64(1, 2) + testing.add_i64(a=1, b=2) + testing.add_i64(np.int64(1), b=True)
real: float = testing.add_f64(1, 2.5) + testing.add_f64(np.float32(1), np.float64(2))
text: str = testing.concat("a", b="b") + testing.defaults(1) + testing.defaults(1, 2, s="y", o=None, v=[1])
maybe: Optional[int] = testing.add_one_if_any(None)
array: anyfn.Array[int] = testing.array_reverse((1, 2))
number = sum(array) + array[0] + testing.array_sum(testing.array_range(3))
number = testing.map_sum({"a": 1})
anything: Any = testing.echo([1, "x"])
x = np.zeros(3, np.float32)
testing.saxpy(2.0, x, y=anyfn.from_dlpack(x))
shape: anyfn.Shape = testing.tensor_shape(x)
number = testing.shape_size(shape) + testing.shape_size([1, 2]) + len(shape)
kind: anyfn.dtype = testing.echo_dtype("float32")
place: anyfn.device = testing.echo_device(anyfn.cpu())
handle: Optional[ctypes.c_void_p] = testing.echo_handle(None)
adder: anyfn.PackedFunc = testing.make_adder(2)
error: Optional[BaseException] = testing.catch_error(lambda: 1)
truth: bool = testing.not_(x=False)
point: anyfn.Object = testing.make_point(1, 2)
named: testing.Point = testing.make_named_point("p")
real = named.x + testing.point_x(named) + testing.make_point(1, 2).y
counter: testing.Counter = testing.make_counter(1)
number = testing.counter_add(counter, 2) + testing.counter_value(counter)
testing.count(1, "x", None)
described: Optional[str] = testing.add_i64.signature


async def awaited() -> int:
    return await testing.add_i64.call_async(1, 2, timeout=1.5)


number = library_api.add_one(x=1)
anything = library_api.echo_any(None)

text = python.repeat("a") + python.repeat("a", 3) + python.repeat(text="a", times=2)
lengths: anyfn.Map[str, int] = python.lengths(["a", "b"])
number = lengths["a"]
halves: anyfn.Array[float] = python.halves(1)
anything = python.anything(1, "x")
