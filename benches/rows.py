"""Defines the rows of all benchmark tables, and the budgets of some rows: the maximum ratio or time that is allowed.

A Python row also has a statement. `python_calls.py` supplies its names for each contender, so all contenders run the same
code.
"""

from typing import NamedTuple, Optional

# Contenders by key, with their names in the tables. The first is compared with the second.
CONTENDERS = {"anyfn": "anyfn", "peer": "tvm_ffi", "nanobind": "nanobind", "pyo3": "PyO3"}
# The section of compiled kernels, which are compared with NumPy, too.
KERNELS = "Compiled kernels"
# The section of sessions with another process, which are compared with plain sockets, or with the cipher alone.
SESSIONS = "Sessions"
# The section of building a kernel, without the C compiler.
BUILDS = "Building a kernel"


class Row(NamedTuple):
    """A row of a benchmark table. Its figure is a time in nanoseconds."""

    name: str
    # Statement that `timeit` runs in a loop, or, after "=", an expression that returns the nanoseconds itself.
    statement: Optional[str] = None
    # Maximum ratio of the figure of anyfn to the one in `against`.
    budget: Optional[float] = None
    # Maximum figure of anyfn.
    limit_ns: Optional[float] = None
    # Number of items that the statement processes; the figure is for one item.
    per: int = 1
    # Statement that runs before each slice.
    setup: str = "pass"
    # Contender with whose figure the row is compared, or another row of anyfn.
    against: str = "peer"
    # Label in the chart, which contains only rows with a label.
    label: Optional[str] = None


def _plain(names, **budgets):
    return [Row(name, budget=budgets.get(name)) for name in names.split()]


# Number of nodes of the graph in `python_calls.py`, and size of its JSON.
NODES = 1023
JSON_BYTES = 133_481
CATCH = "try: {}\nexcept ValueError: pass"

SECTIONS = {
    "C through function pointers": _plain(
        "c_call_3_ints c_get_global c_string_small c_string_heap c_inc_dec_ref c_type_info c_type_index"
        " c_raise_and_take",
        c_call_3_ints=1.0,
        c_get_global=0.3,
        c_raise_and_take=0.05,
    ),
    "Rust beside the peer's C++": _plain(
        "call_nop_0 call_nop_3_ints call_typed_add3 raise_and_catch registry_get string_small string_heap"
        " array_push_1000_per_item array_iterate_per_item array_get list_append_1000_per_item"
        " map_insert_int_1000_per_item dict_insert_int_1000_per_item map_small_get_int map_get_int map_get_str_heap"
        " map_get_str_small",
        raise_and_catch=0.05,
        registry_get=0.3,
    ),
    "Python calls native functions": [
        Row("py_to_py_0", "py0()"),
        Row("call_0", "nop0()", 0.4, label="call, no argument"),
        Row("call_1_int", "nop1(1)", 0.4),
        Row("call_3_ints", "nop3(1, 2, 3)", 0.4, label="call, 3 ints"),
        Row("call_8_ints", "nop8(1, 2, 3, 4, 5, 6, 7, 8)", 0.4),
        Row("call_float", "nop_float(1.5)"),
        Row("call_bool", "nop_bool(True)"),
        Row("call_none", "nop(None)"),
        Row("call_mixed", "nop(1, 2.0, True, None)"),
        Row("call_str_short", "nop_str('short')"),
        Row("call_str_64", "nop_str(text)"),
        Row("call_str_1mb", "nop_str(text_1mb)"),
        Row("call_bytes_8", "nop_bytes(data)"),
        Row("call_bytes_1mb", "nop_bytes(data_1mb)"),
        Row("call_tuple_4", "nop_list((1, 2, 3, 4))"),
        Row("call_list_10", "nop_list(list_10)", label="call, list of 10 ints"),
        Row("call_list_1000", "nop_list(list_1000)"),
        Row("call_dict_4", "nop_dict(dict_4)", label="call, dict of 4"),
        Row("call_dict_1000", "nop_dict(dict_1000)"),
        Row("call_nested", "nop(nested)"),
        Row("call_3_numpy", "nop_arrays(a, b, c)", 0.25, label="call, 3 NumPy arrays"),
        Row("call_3_tensors", "nop_arrays(ta, tb, tc)", 0.5),
        Row("call_1_object", "nop_object(pair)"),
        Row("call_python_callable", "nop_callable(callback)"),
        Row("call_keyword", "add3_by_name(a=1, b=2, c=3)", label="call by keyword, 3 ints"),
        Row("typed_3_ints", "add3(1, 2, 3)"),
        Row("typed_concat", "concat('abc', 'def')"),
        Row("compiled_3_numpy", "add(a, b, c)", 0.3, label="compiled kernel, 3 NumPy arrays"),
        Row("compiled_3_tensors", "add(ta, tb, tc)"),
    ],
    "Python gets values back": [
        Row("echo_int", "echo_int(1)"),
        Row("echo_float", "echo_float(1.5)"),
        Row("echo_none", "echo(None)"),
        Row("echo_str_short", "echo_str('short')"),
        Row("echo_str_64", "echo_str(text)", 0.25, label="echo, str of 64 bytes"),
        Row("echo_str_1mb", "echo_str(text_1mb)"),
        Row("echo_bytes_8", "echo_bytes(data)"),
        Row("echo_bytes_1mb", "echo_bytes(data_1mb)"),
        Row("echo_list_10", "echo(list_10)"),
        Row("echo_dict_4", "echo(dict_4)"),
        Row("echo_object", "echo(pair)"),
        Row("echo_tensor", "echo(ta)"),
        Row("echo_numpy", "echo(a)"),
        Row("echo_function", "echo(nop)"),
    ],
    "Native code calls Python": [
        Row("apply_callback", "apply(callback_any, 1)", 0.7),
        Row("apply_converted", "apply(packed_any, 1)", 0.7),
        Row("callback_0", "=loop0(callback_0, {n})", 0.7, label="callback, no argument"),
        Row("callback_1_int", "=loop1(callback_1, {n}, 1)", 0.7),
        Row("callback_3_ints", "=loop3(callback_3, {n}, 1, 2, 3)", 0.7, label="callback, 3 ints"),
        Row("callback_str_64", "=loop_str(callback_text, {n}, text)", 0.7),
        Row("callback_3_tensors", "=loop_arrays(callback_3, {n}, ta, tb, tc)", 0.7),
        Row("callback_from_library_0", "=library_loop(callback_0, {n})"),
        Row("callback_from_library_3_ints", "=library_loop(callback_3, {n}, 1, 2, 3)"),
    ],
    "Errors in Python": [
        Row("py_error_caught", CATCH.format("fail()")),
        Row("native_error_caught", CATCH.format("raise_error('ValueError', 'told so')"), 0.05,
            label="native error, caught"),
        Row("python_error_through_native", CATCH.format("apply(fail)"), 0.05,
            label="Python error through native"),
    ],
    "Containers, tensors and objects in Python": [
        Row("convert_list_10", "convert(list_10)"),
        Row("convert_dict_4", "convert(dict_4)"),
        Row("convert_callable", "convert(callback)"),
        Row("array_construct_100", "Array(range_100)"),
        Row("array_index", "array[50]", 0.1, label="Array index"),
        Row("array_str_index", "array_str[50]"),
        Row("array_iterate_per_item", "for _ in array: pass", 0.1, per=100, label="Array iterate, per item"),
        Row("array_slice_10", "array[10:20]"),
        Row("array_to_list_per_item", "list(array)", per=100),
        Row("list_get", "items[50]"),
        Row("list_set", "items[50] = 1"),
        Row("list_append", "grown.append(1)", setup="grown = List([])"),
        Row("map_int_lookup", "map_int[50]", 0.4),
        Row("map_str_lookup", "map_str['key 50']", 0.4, label="Map lookup, str"),
        Row("map_in", "50 in map_int"),
        Row("map_items_per_item", "for _ in map_int.items(): pass", per=100),
        Row("map_to_dict_per_item", "dict(map_int.items())", per=100),
        Row("dict_get", "dictionary[50]"),
        Row("dict_set", "dictionary[50] = 1"),
        Row("tensor_from_numpy", "from_dlpack(a)"),
        Row("numpy_from_tensor", "numpy_from_dlpack(ta)"),
        Row("tensor_shape", "ta.shape"),
        Row("object_construct", "IntPair(1, 2)", 0.2, label="construct a native object"),
        Row("object_construct_python_defined", "PythonPair(1, 2)", 0.2),
        Row("object_field_get_python_defined", "python_pair.a"),
        Row("object_field_get", "pair.a"),
        Row("object_method", "pair.sum()"),
        Row("get_global_func", "get('testing.nop')"),
    ],
    # Each row runs in a fresh process that has imported NumPy, with a new copy of the library. `first` includes the first use of
    # the runtime.
    "Loading libraries": [
        Row("load", "=load_time('kernels.so', 'load')", label="load a C library"),
        Row("load_first", "=load_time('kernels.so', 'first')"),
        Row("load_first_cpp", "=load_time('host_plugin.so', 'first')"),
        Row("load_again", "=load_time('kernels.so', 'again')"),
        Row("load_and_call", "=load_time('kernels.so', 'and_call')"),
        Row("first_call", "=load_time('kernels.so', 'call')"),
    ],
    # A tree of objects of a frozen type defined in Python, whose fields are a name, an int, and an Array of nodes.
    "Graphs of objects, per node": [
        Row("graph_repr", "graph_repr(graph)", per=NODES),
        Row("graph_structural_equal", "structural_equal(graph, graph_twin, False, False)", 0.5, per=NODES,
            label="structural equality, per node"),
        Row("graph_structural_hash", "structural_hash(graph, False, False)", 0.5, per=NODES,
            label="structural hash, per node"),
        Row("graph_recursive_equal", "recursive_equal(graph, graph_twin)", 0.5, per=NODES),
        Row("graph_recursive_hash", "recursive_hash(graph)", 0.5, per=NODES),
        Row("graph_deep_copy", "deep_copy(graph)", 0.5, per=NODES),
        Row("graph_walk_all", "structural_walk(graph, (Node, see))", 0.5, per=NODES,
            label="walk with a Python callback, per node"),
        Row("graph_walk_none", "structural_walk(graph, (Other, see))", 0.5, per=NODES),
        Row("graph_map_leaves", "structural_map(graph, (Node, rename))", 0.5, per=NODES),
        Row("graph_map_none", "structural_map(graph, (Other, rename))", 0.5, per=NODES),
        # These two rows are per byte of JSON: 1 ns is 1,000 MB/s.
        Row("graph_save_json_per_byte", "save_json(graph)", 0.5, per=JSON_BYTES),
        Row("graph_load_json_per_byte", "load_json(json_text)", 0.5, per=JSON_BYTES,
            label="load JSON, per byte"),
    ],
    # Libraries that apache-tvm has compiled, in its runtime and in anyfn: `compiled_calls.py`.
    "Compiled code beside apache-tvm": _plain(
        "tvm_3_numpy tvm_3_numpy_copied tvm_3_tensors tvm_wrong_shape_caught tvm_call_packed tvm_load tvm_first_call"
        " parallel_launch parallel_launch_after_1_ms parallel_1_thread parallel_2_threads",
        tvm_3_numpy=0.3,
        parallel_launch=1.0,
    ),
    # The rows of `kernels.py`.
    KERNELS: [
        Row("matmul_f32_512", against="numpy"),
        Row("matmul_f32_1024", against="numpy", budget=1.0),
        Row("matmul_f32_2048", against="numpy"),
        Row("matmul_f32_1000_999_1001", against="numpy"),
        Row("matmul_f64_1024", against="numpy"),
        Row("matmul_bias_relu_f32_1024", against="numpy"),
        Row("matmul_f32_512_2_cores", against="numpy"),
        # Two cores: at least 1.8 times as fast as one.
        Row("matmul_f32_1024_2_cores", against="matmul_f32_1024", budget=0.556),
        Row("matmul_f32_2048_2_cores", against="matmul_f32_2048", budget=0.556),
        Row("add_16m", against="numpy", budget=1.0),
        Row("add_16m_2_cores", against="numpy"),
        Row("softmax_4096_1024", against="numpy"),
        Row("layernorm_4096_1024", against="numpy"),
        Row("sum_rows_4096_1024", against="numpy"),
        Row("sum_columns_4096_1024", against="numpy"),
        Row("sum_all_4096_1024", against="numpy"),
        Row("sum_all_4096_1024_2_cores", against="numpy"),
        Row("transpose_2048", against="numpy"),
        Row("conv2d_3x3_64_64_56", against="numpy"),
    ],
    # The rows of `src/sessions.rs` and `sessions.py`.
    SESSIONS: [
        Row("session_call_0", against="raw", budget=1.2),
        Row("session_call_3_ints", against="raw", budget=1.2),
        Row("session_call_0_python", against="raw", budget=1.2),
        Row("session_call_3_ints_python", against="raw", budget=1.2),
        Row("session_callback_0", against="raw"),
        Row("session_four_threads_per_call", against="raw"),
        Row("session_up_4kib", against="raw"),
        Row("session_down_4kib", against="raw"),
        # At least half of the bandwidth.
        Row("session_up_64mib", against="raw", budget=2.0),
        Row("session_down_64mib", against="raw", budget=2.0),
        Row("session_connect", against="raw"),
        Row("session_call_0_key", against="raw"),
        Row("session_call_3_ints_key", against="raw"),
        Row("session_callback_0_key", against="raw"),
        Row("session_four_threads_per_call_key", against="raw"),
        Row("session_up_4kib_key", against="raw"),
        Row("session_down_4kib_key", against="raw"),
        Row("session_up_64mib_key", against="raw", budget=2.0),
        Row("session_down_64mib_key", against="raw", budget=2.0),
        Row("session_connect_key", against="raw"),
    ],
    # The rows of `builds.py`: creating tensor expressions, the default schedule, the passes, the passes with verification before
    # and after them, everything up to the C source, and building from the cache, both in a process that has built before and as
    # the first build of a process.
    BUILDS: [
        Row("build_expressions"),
        Row("build_schedule"),
        Row("build_passes", limit_ns=1e6),
        Row("build_lowered"),
        Row("build_source"),
        Row("build_again", limit_ns=1e6),
        Row("build_again_fresh", limit_ns=1e6),
    ],
    "Threads, async, import": [
        Row("four_threads_per_call", "=four_threads(nop1, {n})"),
        Row("async_call", "=async_calls(2000)"),
        Row("import_over_numpy", "=import_time()", limit_ns=15e6),
    ],
}
# Sections that `python_calls.py` measures. Other programs measure the remaining sections.
PYTHON_SECTIONS = [name for name, rows in SECTIONS.items() if rows[0].statement]
