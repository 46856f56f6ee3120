"""Typed program that uses every public name. mypy --strict checks the program, and a test runs it."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import tempfile
from collections.abc import Callable
from typing import Any, Optional, Union

import anyfn
import anyfn.testing
import anyfn.typing
import numpy as np
from anyfn import (
    Array,
    Dict,
    Error,
    ErrorObject,
    List,
    Map,
    Module,
    Object,
    PackedFunc,
    Shape,
    Tensor,
    dtype,
    rpc,
    te,
    tir,
    transform,
)
from numpy.typing import NDArray

# --- Registering -----------------------------------------------------------------------------------------------------


@anyfn.register_func("tour.greet", override=True)
def greet(name: str) -> str:
    return "hello " + name


@anyfn.register_func
def tour_plain(x: int) -> int:
    return x + 1


def twice(x: float) -> float:
    return 2 * x


@dataclasses.dataclass
class Settings:
    rate: float


fields: Map[str, Any] = anyfn.as_map(Settings(0.5))
assert fields["rate"] == 0.5

registered: PackedFunc = anyfn.register_func("tour.twice", twice, override=True)
registered = anyfn.register_func("tour.twice", override=True)(twice)
# A registered function has the types of the Python function.
greeting: str = greet(name="you")
four: int = tour_plain(3)
tripled: float = anyfn.register_func("tour.tripled", lambda: 3.0, override=True)()


# Lists, dicts and tuples are returned as containers.
@anyfn.register_func("tour.squares", override=True)
def squares(n: int) -> "list[int]":
    return [i * i for i in range(n)]


@anyfn.register_func
def tour_sizes(names: "list[str]") -> "dict[str, int]":
    return {name: len(name) for name in names}


def two_values() -> "tuple[int, str]":
    return 1, "x"


squared: Array[int] = squares(3)
sizes: Map[str, int] = tour_sizes(["a"])
returned: Array[Any] = anyfn.register_func("tour.two_values", two_values, override=True)()
assert list(squared) == [0, 1, 4] and sizes["a"] == 1 and list(returned) == [1, "x"]
anyfn.remove_global_func("tour_sizes")

# --- Looking up and calling ------------------------------------------------------------------------------------------

found: PackedFunc = anyfn.get_global_func("tour.greet")
maybe: Optional[PackedFunc] = anyfn.get_global_func("tour.nothing", allow_missing=True)
assert maybe is None
maybe = anyfn.get_global_func("tour.nothing", True)
allow: bool = True
maybe = anyfn.get_global_func("tour.nothing", allow)
text: str = found("world")
text = greet("world")
text = found.__name__
about: Optional[str] = found.signature
found.releases_gil = True
names: list[str] = anyfn.list_global_func_names()
removed: bool = anyfn.remove_global_func("tour_plain")


async def later() -> str:
    result: str = await found.call_async("world", timeout=20)
    return result


assert asyncio.run(later()) == "hello world"
anyfn.check_signals()
anyfn.set_async_threads(32)
timing = anyfn.time_evaluator(abs, "cpu", number=2, repeat=2)(-1)
mean: float = timing.mean
times: "list[float]" = list(timing.results)
with anyfn.profile(limit=10, shapes=True) as recorded:
    found("world")
recorded_calls: int = recorded.calls
healthy: bool = anyfn.doctor().ok
table: str = recorded.table(sort="total")
calls: int = found.time_evaluator(number=3)("world").numbers[0]
anyfn.set_num_threads(2)
threads: int = anyfn.num_threads()
anyfn.set_num_threads(None)
anyfn.set_parallel_launcher(anyfn.set_parallel_launcher(lambda run, n: [run(i) for i in range(n)]))

# --- Objects and containers ------------------------------------------------------------------------------------------

packed: PackedFunc = anyfn.convert(lambda x: x)
array: Array[int] = anyfn.convert([1, 2, 3])
mapping: Map[str, int] = anyfn.convert({"a": 1})
thing: Object = array
key: str = thing.type_key
index: int = thing.type_index
same: bool = thing.same_as(array)


def total(values: Array[int]) -> int:
    return sum(values) + len(values) + values[0] + values[-1]


assert total(array) == 13
assert mapping["a"] + sum(mapping[k] for k in mapping) == 2
assert "a" in mapping


def into(values: List[int], pairs: Dict[str, int]) -> None:
    values.append(1)
    values[0] = 2
    pairs["a"] = values[0]
    del pairs["a"]


numbers: List[int] = List([3, 1, 2])
ages: Dict[str, int] = Dict({"a": 1}, b=2)
into(numbers, ages)
numbers.sort(key=lambda x: -x, reverse=True)
part: List[int] = numbers[1:].copy() + [5]
joined: Array[int] = Array(range(3)) * 2
both: Map[str, int] = Map([("a", 1)]) | {"b": 2}
for name, age in both.items():
    text, index = name, age
plain: list[int] = anyfn.to_python(joined)
assert plain == joined and Shape((2, 3))[1:] == (3,)


items: List[int] = List([1, 2])
changing: Dict[str, int] = Dict({"a": 1}, b=2)
into(items, changing)
items += [3]
items.extend(array)
three: Array[int] = Array(range(3))
named = Map(a=1.5)
number: float = named["a"]
maybe_number: Optional[float] = named.get("b")
number = named.get("b", 2.5)
mixed: Array[Union[int, str]] = three + ["x"]
merged: Dict[str, int] = changing | {"c": 3}
for key, value in merged.items():
    index = value
match_all: list[int] = [*three[1:], *items]
python: Any = anyfn.to_python(merged)


def alias(values: "Array[int]", pairs: "Dict[str, List[int]]") -> None:
    pairs["a"].extend(values)


shape: Shape = anyfn.testing.echo_shape((2, 3))
extent: int = shape[0]
extents: tuple[int, ...] = tuple(shape)


@anyfn.register_object("testing.Point", constructor="testing.make_point")
class Point(Object):
    @property
    def x(self) -> float:
        result: float = anyfn.testing.point_x(self)
        return result


point: Point = Point(1.0, 2.0)
real: float = point.x


@anyfn.object("tour.Pair")
class Pair(Object):
    a: int
    b: int = 2
    names: list[str] = anyfn.field(default_factory=list)


@anyfn.object("tour.Triple")
class Triple(Pair):
    c: float = 0.5


@anyfn.object(frozen=True)
class Plain(Object):
    a: int = anyfn.field(default=1)


pair: Pair = Pair(1, b=3)
size: int = pair.a + Triple(1, 2, c=1.5).b + Plain().a
pair.b = 5


@anyfn.object("tour.Options", kw_only=True, structural="tree")
class Options(Object):
    rate: float = anyfn.field(default=0.5, repr=False, structural="ignore", doc="How fast.")
    steps: int = 1


options: Options = anyfn.replace(Options(steps=2), rate=0.25)
described = anyfn.type_info(Options)
documentation: str = described.field("rate").doc
parent = anyfn.type_info("tour.Triple").parent
assert parent is not None and parent.key == "tour.Pair" and "rate" not in repr(options)

class Money:
    cents: int = 5


anyfn.register_converter(
    Money, Options, to_native=lambda money: Options(steps=money.cents), from_native=lambda native: native.steps
)
anyfn.remove_converter(Money)

# --- Tensors ---------------------------------------------------------------------------------------------------------

zeros: NDArray[np.float32] = np.zeros((2, 3), np.float32)
tensor: Tensor = anyfn.from_dlpack(zeros)
extents = tensor.shape
strides: tuple[int, ...] = tensor.strides
kind: dtype = tensor.dtype
place: anyfn.device = tensor.device
address: int = tensor.data_ptr
ndim: int = tensor.ndim
back: NDArray[Any] = tensor.numpy()
again: Tensor = anyfn.from_dlpack(tensor)
lent: Tensor = anyfn.const(zeros)
made: Tensor = anyfn.tensor([[1, 2], [3, 4]], "int4")
nested: Any = made.tolist()
row: Tensor = made[0, ::2]
made[...] = 0
sized: Tensor = anyfn.empty((2, 3), dtype="bfloat16", device="cpu").reshape(3, -1).T.contiguous()
filled: Tensor = anyfn.full(4, 1.5, np.float32, anyfn.cpu()).copyto(anyfn.zeros(4))
raw: bytes = filled.astype("float16").to("cpu").tobytes()
there: list[anyfn.device] = anyfn.devices()
units: Optional[int] = there[0].compute_units
with anyfn.Stream("cpu") as work:
    work.synchronize()
bits: int = dtype("float16").bits + dtype(np.int8).lanes + kind.code + kind.itemsize
same = anyfn.cpu() == anyfn.device("cpu", 0) and anyfn.cuda(1) != anyfn.device("cuda:0")
where: Union[str, int] = place.type or place.device_type or place.index or place.device_id

# --- Modules ---------------------------------------------------------------------------------------------------------

module: Module = anyfn.load_module(os.environ["ANYFN_TESTING_LIB"])
assert module.add_one(1) == module["add_one"](1) == module.get_function("add_one")(1) == 2
assert module.implements_function("add_one") and "add_one" in module.list_functions() and module.kind == "library"
linked: Module = anyfn.system_lib()
headers: str = anyfn.get_include()
in_use: dict[str, int] = module.leases()
reason: Optional[str] = module.pinned
assert in_use["modules"] >= 1 and (reason is None or reason)
library_facts = anyfn.inspect_library(os.environ["ANYFN_TESTING_LIB"])
assert "add_one" in library_facts["functions"] and len(anyfn.mapped_libraries()) >= 1
in_detail: Callable[[], dict[str, list[dict[str, Any]]]] = lambda: module.leases(detail=True)
ledger: list[Callable[[], object]] = [anyfn.start_ledger, anyfn.live_handles, anyfn.live_handles_text]
unmapped: list[str] = anyfn.reap()
followed: anyfn.Watch = anyfn.watch(os.environ["ANYFN_TESTING_LIB"], on_problem=lambda path, reason: None)
assert followed.add_one(1) == followed["add_one"](1) == followed.module.add_one(1) == 2
reloaded: bool = followed.poll()
problem: Optional[str] = followed.problem
assert followed.reload().is_current() and not reloaded and problem is None


class Constant:
    kind = "tour_constant"

    def __init__(self, value: int) -> None:
        self.value = value

    def get_function(self, name: str) -> Optional[Callable[[], int]]:
        return (lambda: self.value) if name == "value" else None

    def save_to_bytes(self) -> bytes:
        return bytes([self.value])


anyfn.register_module_loader(Constant.kind, lambda data: Constant(data[0]), override=True)
constant: Module = anyfn.make_module(Constant(5))
kernels: Module = anyfn.opencl_module(
    "kernel void zero(global int *x) { x[get_global_id(0)] = 0; }", {"zero": ["pointer", "blockIdx.x", "threadIdx.x"]}
)
grids: Module = anyfn.cuda_module(
    'extern "C" __global__ void zero(int *x) { x[threadIdx.x] = 0; }', {"zero": ["pointer", "threadIdx.x"]}
)
meshes: Module = anyfn.metal_module("kernel void zero(device int* x [[buffer(0)]]) { x[0] = 0; }", {"zero": ["pointer"]})
shaders: Module = anyfn.vulkan_module(
    "@compute @workgroup_size(1) fn nothing() {}", {"nothing": ["pointer", "blockIdx.x"]}
)
bits_of_module: int = constant.get_property_mask()
carried: list[Module] = constant.imports
texts: list[str] = [constant.inspect_source(), *constant.get_write_formats()]
assert constant.value() == 5 and constant.save_to_bytes() == b"\5" and not (carried or texts[0])
constant.import_module(module)
constant.clear_imports()
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "tour.so")
    anyfn.bundle(path, os.environ["ANYFN_TESTING_LIB"], constant)
    constant.export(path, [os.environ["ANYFN_TESTING_LIB"]])
    assert [module["kind"] for module in anyfn.inspect_library(path)["imports"]] == ["library", "tour_constant"]

# --- The compiler ----------------------------------------------------------------------------------------------------

given: te.Tensor = te.placeholder((4,), "float32", name="given")
doubled: te.Tensor = te.compute((4,), lambda i: given[i] * 2, name="doubled")
function: tir.PrimFunc = te.create_prim_func([given, doubled], name="double")
compiled: Module = anyfn.build(function)
target: anyfn.Target = anyfn.Target("c", mcpu="native", cc="cc", options=["-O2"], num_cores=2, vector_bytes=16)
assert target.kind == "c" and target.supports("nothing") is False
compiled = anyfn.build([function], target={"kind": "c"})
c_source: str = anyfn.source(function, target="c")
automatic: tir.Schedule = tir.default_schedule(function).copy()
lowered: tir.IRModule = anyfn.lower(automatic, target)
by_hand: tir.Schedule = tir.Schedule(function)
by_hand.finish(target)
renamed: Module = anyfn.build(by_hand, "c -O2", name="twice", verbose=True)
assert renamed.list_functions() == ["twice"]
result = np.empty(4, "float32")
compiled["double"](np.ones(4, "float32"), result)
read_back: Union[tir.PrimFunc, tir.IRModule] = tir.parse(str(function))
tir.interpret(function, np.zeros(4, "float32"), np.zeros(4, "float32"))
stages: tir.Schedule = tir.Schedule(tir.IRModule({"double": function}))
outermost: tir.Var = stages.get_loops(doubled)[0]
stages.parallel(outermost)
reducing: tir.IterVar = te.reduce_axis(4)
axis: tir.Var = tir.var("i")
sum_of_two: tir.PrimExpr = axis + 1
with tir.Analyzer() as known:
    known.bind(axis, 0, 8)
    shorter: tir.PrimExpr = known.simplify(sum_of_two // 1)
    is_small: bool = known.can_prove(sum_of_two < 9)
tir.verify(function)
assert result.tolist() == [2.0] * 4 and given.op.name == "given" and str(sum_of_two) == "i + 1"

buffer: tir.Buffer = tir.decl_buffer((4, 4), "float32", name="B")
call: tir.PrimExpr = tir.call_packed("tour.twice", buffer[0, 0], buffer[0, 0:4], "text", dtype="float32")
statement: tir.Stmt = tir.for_loop(4, lambda i: buffer.store(tir.call_extern("fabsf", call, dtype="float32"), i, 0))
statements: tir.Stmt = tir.seq(statement, tir.call_packed("tour.look", tir.read_only(buffer)))
assert "fabsf" in str(statements)
external: te.Tensor = te.extern((4,), [given], lambda ins, outs: tir.call_packed("tour.copy", *ins, *outs), name="external")
assert isinstance(external.op, te.ExternOp) and external.op.inputs[0].name == "given"


# --- Other processes -------------------------------------------------------------------------------------------------


def remote_tour(session: rpc.Session) -> None:
    there: rpc.Tensor = session.tensor(np.ones((2, 3), np.float32))
    other: rpc.Tensor = session.empty((2, 3), "float32", device="cpu")
    other.copy_from(there)
    other.assign(there)
    other.write(np.ones((2, 3), np.float32))
    out = np.zeros((2, 3), np.float32)
    other.read(out)
    assert out.sum() == 6 and other.numpy().shape == tuple(other.shape)
    assert other.nbytes == 24 and other.dtype == "float32" and other.device == anyfn.cpu()
    echo: PackedFunc[..., Any] = session["testing.echo"]
    limited = session.with_timeout(echo, 5.0)
    assert limited(1) == session.get_function("testing.echo")(1)
    assert "testing.echo" in session.function_names() and session.info()["cores"] >= 1
    session.synchronize()
    target: tir.Target = session.target()
    digest: str = session.upload(b"not a library", progress=lambda sent, total: None)
    assert digest in session.files() and session.send_file(b"not a library") == digest
    print(session.profile(limit=100))
    assert session.remove(digest) and target.kind == "c"
    allocated: rpc.Tensor = session.allocate((1,), "int8")
    assert allocated.nbytes == 1 and session.peer == "local" and session.ended() is None

    @session.register_func("tour.back", override=True)
    def back(x: int) -> int:
        return x + 1

    assert session.register_func("tour.back", back, override=True)(1) == session["tour.back"](1) == 2
    session.set_function("tour.back", lambda x: x, replace=True)


with rpc.local() as here:
    remote_tour(here)
    x_there = te.placeholder((4,), name="x")
    shipped: Module = here.load([x_there, te.compute((4,), lambda i: x_there[i] + 1, name="y")])


def serving(server: rpc.Server) -> None:
    host: str = server.host
    print(host, server.port, server.sessions())
    server.stop()


with rpc.serve(key=rpc.make_key("tour"), functions=["testing.*"], imports=["anyfn.typing"], sessions=1) as served:
    serving(served)


def never_called(server: rpc.Session, remote: rpc.RemoteObject) -> None:
    rpc.connect("localhost", 9190, key=None, timeout=1.0).close()
    rpc.spawn(imports=["os"], command=None).close()
    pool: rpc.Tracker = rpc.tracker("lab:9192", key=None, key_file="alice.key")
    with pool.request("pi4", {"os": "linux"}, priority=1, timeout=600) as leased:
        leased.info()
    with pool.request_all("pi4", 2, timeout=1.5) as all_leased:
        first: rpc.Session = all_leased[0]
        first.close()
    states: list[str] = [device["state"] for device in pool.summary()["devices"]]
    del states
    loaded: Module = server.load_file("0" * 64)
    value: Any = remote.get("name")
    print(loaded, value, remote.text(), remote.type_key)


@transform.prim_func_pass
def unchanged(func: tir.PrimFunc) -> tir.PrimFunc:
    return func


@transform.module_pass(name="all")
def unchanged_all(module: tir.IRModule) -> tir.IRModule:
    return module


passes: transform.Pipeline = transform.Sequential([unchanged, unchanged_all], name="tour")
passes.append(transform.get("vectorize"))
passes.insert_before("all", transform.as_pass(transform.default_pipeline()))
passes.print_after(["vectorize"], to=lambda title, text: None)
after_passes: tir.PrimFunc = passes(function)
assert list(passes.names()) == ["unchanged", "default", "all", "vectorize"] and "vectorize" in transform.names()
assert anyfn.build(function, pipeline=[*passes.passes()], passes=[unchanged])["double"] is not None
assert anyfn.build(function, passes=unchanged)["double"] is not None

# --- Errors ----------------------------------------------------------------------------------------------------------

try:
    anyfn.testing.raise_error("MyError", "no")
except Error as error:
    native: ErrorObject = error.__anyfn_error__
    text = native.kind + native.message + native.backtrace
    cause: Optional[BaseException] = native.cause
assert text.startswith("MyErrorno")


@anyfn.register_error
class TourError(ValueError):
    place = 0


@anyfn.register_error("tour.Other")
class OtherError(ValueError):
    pass


kept: type[OtherError] = anyfn.register_error("tour.Third", OtherError)
try:
    anyfn.testing.raise_error("TourError", "no")
except TourError as error:
    index = error.place
try:
    anyfn.testing.add_i64(1, "x")
except TypeError as error:
    about = getattr(error, "__anyfn_error__").expected

# --- Annotations of one's own ----------------------------------------------------------------------------------------


def scaled(
    x: anyfn.typing.TensorLike,
    by: Union[anyfn.typing.FloatLike, anyfn.typing.FloatOfNumPy],
    times: anyfn.typing.IntLike = 1,
    to: anyfn.typing.DTypeLike = "float32",
    on: Optional[anyfn.typing.DeviceLike] = None,
    shape: anyfn.typing.ShapeLike = (),
    note: anyfn.typing.BytesLike = b"",
    handle: anyfn.typing.HandleLike = None,
    error: Optional[anyfn.typing.ErrorLike] = None,
) -> Tensor:
    return anyfn.from_dlpack(x)


def shares(x: anyfn.typing.SupportsDLPack) -> Tensor:
    return scaled(x, np.float32(2.0), np.int64(1))


@anyfn.typing.packed
def told(x: int) -> str:
    return str(x)


tensor = shares(zeros)

# --- Comparing and copying -------------------------------------------------------------------------------------------

is_same: bool = anyfn.structural_equal([1, 2], [1, 2], map_free_vars=True)
form: int = anyfn.structural_hash([1, {"a": 2.5}], skip_tensor_content=True)
differs = anyfn.get_first_structural_mismatch([1, {"a": 2}], [1, {"a": 3}])
assert differs is not None
where_first: anyfn.AccessPath = differs[0]
last_step: Optional[anyfn.AccessStep] = where_first.step
assert str(where_first) == 'root[1]["a"]' and where_first.depth == 2 and last_step is not None and last_step.key == "a"
by_form: dict[anyfn.StructuralKey, str] = {anyfn.StructuralKey([1, 2]): "a"}
assert by_form[anyfn.StructuralKey((1, 2))] == "a"
assert anyfn.recursive_equal([1], [1]) and anyfn.recursive_less([1], [2])
assert anyfn.recursive_hash([1.0]) == anyfn.recursive_hash([1.0])
again = anyfn.deep_copy(List([1, 2]))
anyfn.register_type_attr(Options, "__ffi_repr__", lambda options, show: f"options of {show(options.steps)} steps")

# --- Saving ----------------------------------------------------------------------------------------------------------

saved: str = anyfn.save_json([1, 2], metadata={"by": "the tour"})
loaded = anyfn.load_json(saved, unknown_fields="error")
who: Any = anyfn.json_metadata(saved)["by"]
page: str = anyfn.save_html([1, 2], depth=3)
anyfn.register_alias("tour.Old", "tour.New")
anyfn.register_alias("x", "y", of="tour.New")

for name in ("tour.greet", "tour.tripled", "tour.twice"):
    anyfn.remove_global_func(name)


def graphs(root: anyfn.Object) -> None:
    def on_node(node: Any) -> Optional[anyfn.VisitInterrupt]:
        return anyfn.VisitInterrupt(node) if node is None else None

    stop = anyfn.structural_walk(root, (anyfn.Object, on_node), order="pre", once=True)
    if stop is not None:
        print(stop.value, anyfn.WalkResult.SKIP, anyfn.DefRegionKind.NONE)

    def visit(node: Any, visitor: anyfn.StructuralVisitor) -> Optional[anyfn.VisitInterrupt]:
        return visitor.visit(node) or visitor.default_visit(node)

    def mutate(node: Any, mutator: anyfn.StructuralMutator) -> Any:
        return mutator.mutate(node)

    anyfn.structural_visit(root, [((int, "my.Node"), visit), (str, visit)])
    print(anyfn.structural_map(root, (int, lambda x: x + 1), share=False, inplace=True))
    print(anyfn.structural_mutate(root, mutate))
