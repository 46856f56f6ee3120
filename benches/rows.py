"""Defines the rows of all benchmark tables, and the budgets of some rows: the maximum ratio or time that is allowed.

A Python row also has a statement. `python_calls.py` supplies its names for each contender, so all contenders run the same
code.
"""

from typing import NamedTuple, Optional

# Contenders by key, with their names in the tables. The first is compared with the second.
CONTENDERS = {"anyfn": "anyfn", "peer": "tvm_ffi", "nanobind": "nanobind", "pyo3": "PyO3"}
# The section of calls through the C API of TVM 0.8, which the program of the first section measures.
CLASSIC = "The C API of TVM 0.8"
# The section of compiled kernels, which are compared with NumPy, too.
KERNELS = "Compiled kernels"
# The section of sessions with another process, which are compared with plain sockets, or with the cipher alone.
SESSIONS = "Sessions"
# The section of OpenCL devices, which are compared with OpenCL alone.
DEVICES = "OpenCL devices"
DEVICE_KERNELS = "Kernels compiled for an OpenCL device"
# The section of building a kernel, without the C compiler.
BUILDS = "Building a kernel"
# The section of native programs with two threads, and the section whose programs measure it.
THREADS, RUST = "Two threads", "Rust beside the peer's C++"
# The sections of the C++ headers: calls, compile times of plugins, and bytes of their object files.
CPP, CPP_COMPILE, CPP_SIZE = "C++ beside the peer's C++", "Compiling C++ plugins", "Size of C++ plugins"
# The section of calls from Node.js, which are compared with a plain addon.
JAVASCRIPT = "JavaScript beside a plain addon"
# The section of calls from Java, which are compared with plain JNI.
JAVA = "Java beside plain JNI"
# The section of copies and conversions of tensors, which are compared with NumPy.
COPIES = "Copies and casts of tensors"
# The section whose figures are bytes.
MEMORY = "Memory"

# Reasons why the two sides of a row do different work, by the key in `Row.unlike`.
UNLIKE = {
    "lock": "The functions `testing.*` of anyfn keep the global interpreter lock (GIL) during a call, those of tvm_ffi release it,"
    " and the two are compiled from different sources.",
    "error": "The two functions that raise the error are compiled from different sources: anyfn's is in Rust, and tvm_ffi's is in"
    " C++, which symbolises a backtrace at each error.",
    "stack": "An error of tvm_ffi records the functions on the stack, one of anyfn the line that raised it, unless `ANYFN_BACKTRACE=1`.",
    "async": "anyfn calls the function by `call_async`; tvm_ffi has none, so its call goes through the executor of the event loop.",
    "connect": "The session includes the start of its process and, with a key, a handshake; the plain socket includes neither.",
    "cipher": "The column `raw` has no cipher. The difference is the price of the key.",
    "list": "A List of anyfn is locked by each operation, so that threads may change it; one of tvm_ffi is not, and threads that"
    " change it corrupt it.",
    "exact": "anyfn checks that the integer type holds each value exactly, and NumPy changes the value if it does not.",
}


class Row(NamedTuple):
    """A row of a benchmark table. Its figure is a time in nanoseconds, in the section `MEMORY` a number of bytes."""

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
    # Key in `UNLIKE`, if the two sides do different work. Such a row has no budget; its twins have it.
    unlike: Optional[str] = None
    # Rows, or a column, in which both sides do the same work.
    twins: str = ""


def _plain(names, **budgets):
    return [Row(name, budget=budgets.get(name)) for name in names.split()]


# Number of nodes of the graph in `python_calls.py`, and size of its JSON.
NODES = 1023
JSON_BYTES = 133_481
CATCH = "try: {}\nexcept ValueError: pass"
CATCH_TYPE = "try: {}\nexcept TypeError: pass"
# Twins of the rows that call the functions of the testing libraries: both call one C library. The first row of a pair releases
# the GIL on both sides, as both do by default; the second keeps it on both.
CALLS = "library_{0}, library_{0}_gil_kept"
CALLBACKS = "callback_from_library_{0}, callback_from_library_{0}_gil_kept"


def _lock(name, statement, twin, **options):
    """Returns a row that calls a function of the testing library."""
    return Row(name, statement, unlike="lock", twins=CALLS.format(twin), **options)


def _twins(name, statement, budget, label=None, prefix="library"):
    """Returns two rows that call one C library: `nop` in the statement releases the GIL, `kept_nop` keeps it."""
    kept = statement.replace("library_", "kept_")
    return [
        Row(f"{prefix}_{name}", statement, budget, label=label),
        Row(f"{prefix}_{name}_gil_kept", kept, budget, label=label and f"{label} (GIL kept)"),
    ]

def _classic(count):
    """Returns two rows: a call through the C ABI with `count` numbers, and the same call through the C API of TVM 0.8, which
    may take 10 ns more than the 3.5 ns of a call through the ABI."""
    return [Row(f"c_call_{count}"), Row(f"c_classic_call_{count}", against=f"c_call_{count}", limit_ns=13.5)]


def _java(name):
    """Returns the rows of a JDK. Typed views pass numbers as they are, `invoke` takes objects of any class."""
    return [
        Row(f"{name}_call_0_typed", against="jni", budget=1.5),
        Row(f"{name}_call_3_longs_typed", against="jni", budget=1.5),
        Row(f"{name}_call_0_invoke", against="jni", budget=5.0),
        Row(f"{name}_call_3_longs_invoke", against="jni", budget=5.0),
        Row(f"{name}_echo_string", against="jni"),
        Row(f"{name}_tensor", against="jni"),
        Row(f"{name}_direct_buffer", against="jni"),
        Row(f"{name}_callback", against="jni"),
    ]


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
        " list_extend_1000_per_item map_insert_int_1000_per_item dict_insert_int_1000_per_item map_small_get_int map_get_int"
        " map_get_str_heap map_get_str_small",
        # A call checks what the peer assumes: that calls are not observed, and that the result is no view.
        call_nop_0=1.5,
        call_nop_3_ints=1.0,
        call_typed_add3=1.0,
        raise_and_catch=0.05,
        registry_get=0.3,
        string_small=1.0,
        string_heap=1.0,
        array_push_1000_per_item=1.0,
        array_iterate_per_item=1.0,
        array_get=1.0,
        # Each operation acquires the lock of the List; the peer has no locks.
        list_append_1000_per_item=3.5,
        list_extend_1000_per_item=1.0,
        map_small_get_int=1.0,
        map_get_int=1.0,
        map_get_str_heap=1.0,
        map_get_str_small=1.0,
    ),
    # Two native threads. The figure is the elapsed time per iteration of each thread, so it equals that of one thread if the
    # threads do not slow each other down.
    THREADS: [
        Row("two_threads_one_function", budget=1.0),
        Row("two_threads_registry_get", budget=1.0),
        Row("two_threads_one_array", budget=1.0),
        Row("two_threads_one_array_of_objects"),
        Row("two_threads_one_map", budget=1.0),
        Row("two_threads_one_list_get", unlike="list"),
        Row("one_thread_own_function"),
        # Two threads do at least 1.8 times the work of one.
        Row("two_threads_own_function", against="one_thread_own_function", budget=1.11),
        Row("one_thread_own_list"),
        Row("two_threads_own_list", against="one_thread_own_list", budget=1.11),
        Row("one_thread_own_objects"),
        Row("two_threads_own_objects", against="one_thread_own_objects", budget=1.11),
    ],
    # The rows of `cpp/calls.cc`.
    CPP: [
        *(
            Row(f"cpp_{name}", budget=1.0)
            for name in (
                "call_0 call_3_ints call_typed_3_ints call_string call_std_string call_object call_tensor make_closure get_global"
                " make_object field_get field_set string_small string_heap array_push_1000_per_item array_iterate_per_item"
                " array_iterate_strings_per_item error_caught_with_stack error_caught_without_stack"
            ).split()
        ),
        Row("cpp_error_caught", unlike="stack", twins="cpp_error_caught_with_stack, cpp_error_caught_without_stack"),
    ],
    # The rows of `cpp/plugins.py`.
    CPP_COMPILE: [Row(f"cpp_compile_{name}", budget=0.5) for name in ("include", "empty", "ten_functions", "ten_types")],
    CPP_SIZE: [Row(f"cpp_size_{name}", budget=1.0) for name in ("include", "empty", "ten_functions", "ten_types")],
    # The rows of `js/calls.js`.
    JAVASCRIPT: [
        Row("js_call_0", against="plain", budget=1.3, label="Node.js, call, no argument"),
        Row("js_call_3_numbers", against="plain", budget=1.3, label="Node.js, call, 3 numbers"),
        Row("js_callback", against="plain"),
        Row("js_echo_string", against="plain"),
        Row("js_typed_array", against="plain"),
    ],
    # The rows of `java/Calls.java`, with the newest JDK and with the oldest.
    JAVA: [*_java("java"), *_java("java17")],
    # The limit of a string is the time that TVM 0.8 takes.
    CLASSIC: [
        *(row for count in range(5) for row in _classic(count)),
        Row("c_classic_string_64", limit_ns=68),
    ],
    "Python calls native functions": [
        Row("py_to_py_0", "py0()"),
        _lock("call_0", "nop0()", "call_0", label="call, no argument"),
        *_twins("call_0", "library_nop()", 0.4, "C library, no argument"),
        _lock("call_1_int", "nop1(1)", "call_1_int"),
        *_twins("call_1_int", "library_nop(1)", 0.4),
        _lock("call_3_ints", "nop3(1, 2, 3)", "call_3_ints", label="call, 3 ints"),
        *_twins("call_3_ints", "library_nop(1, 2, 3)", 0.4, "C library, 3 ints"),
        _lock("call_8_ints", "nop8(1, 2, 3, 4, 5, 6, 7, 8)", "call_8_ints"),
        *_twins("call_8_ints", "library_nop(1, 2, 3, 4, 5, 6, 7, 8)", 0.4),
        Row("call_float", "nop_float(1.5)", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("call_bool", "nop_bool(True)", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("call_none", "nop(None)", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("call_mixed", "nop(1, 2.0, True, None)", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("call_str_short", "nop_str('short')", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("call_str_64", "nop_str(text)", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("call_str_1mb", "nop_str(text_1mb)", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("call_bytes_8", "nop_bytes(data)", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("call_bytes_1mb", "nop_bytes(data_1mb)", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("call_tuple_4", "nop_list((1, 2, 3, 4))", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("call_list_10", "nop_list(list_10)", label="call, list of 10 ints", unlike="lock",
            twins=CALLS.format("call_3_ints")),
        Row("call_list_1000", "nop_list(list_1000)", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("call_dict_4", "nop_dict(dict_4)", label="call, dict of 4", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("call_dict_1000", "nop_dict(dict_1000)", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("call_nested", "nop(nested)", unlike="lock", twins=CALLS.format("call_3_ints")),
        _lock("call_3_numpy", "nop_arrays(a, b, c)", "call_3_numpy", label="call, 3 NumPy arrays"),
        *_twins("call_3_numpy", "library_nop(a, b, c)", 0.25, "C library, 3 NumPy arrays"),
        _lock("call_3_tensors", "nop_arrays(ta, tb, tc)", "call_3_tensors"),
        *_twins("call_3_tensors", "library_nop(ta, tb, tc)", 0.5),
        Row("call_1_object", "nop_object(pair)", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("call_python_callable", "nop_callable(callback)", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("call_keyword", "add3_by_name(a=1, b=2, c=3)", label="call by keyword, 3 ints", unlike="lock",
            twins=CALLS.format("call_3_ints")),
        Row("typed_3_ints", "add3(1, 2, 3)", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("typed_concat", "concat('abc', 'def')", unlike="lock", twins=CALLS.format("call_3_ints")),
        Row("compiled_3_numpy", "add(a, b, c)", 0.3, label="compiled kernel, 3 NumPy arrays"),
        Row("compiled_3_tensors", "add(ta, tb, tc)"),
        # The same calls as users write them, without a variable for the function.
        Row("module_held_call", "module_nop(1, 2, 3)"),
        Row("module_attribute_call", "module.nop(1, 2, 3)"),
        Row("module_item_call", "module['nop'](1, 2, 3)"),
        Row("compiled_attribute_3_numpy", "module.add(a, b, c)", 0.3),
    ],
    "Python gets values back": [
        Row("echo_int", "echo_int(1)", unlike="lock"),
        Row("echo_float", "echo_float(1.5)", unlike="lock"),
        Row("echo_none", "echo(None)", unlike="lock"),
        Row("echo_str_short", "echo_str('short')", unlike="lock"),
        Row("echo_str_64", "echo_str(text)", label="echo, str of 64 bytes", unlike="lock", twins=CALLS.format("echo_str_64")),
        *_twins("echo_str_64", "library_echo(text)", 0.25, "C library, echo of a str of 64 bytes"),
        Row("echo_str_1mb", "echo_str(text_1mb)", unlike="lock"),
        Row("echo_bytes_8", "echo_bytes(data)", unlike="lock"),
        Row("echo_bytes_1mb", "echo_bytes(data_1mb)", unlike="lock"),
        Row("echo_list_10", "echo(list_10)", unlike="lock"),
        Row("echo_dict_4", "echo(dict_4)", unlike="lock"),
        Row("echo_object", "echo(pair)", unlike="lock"),
        Row("echo_tensor", "echo(ta)", unlike="lock"),
        Row("echo_numpy", "echo(a)", unlike="lock"),
        Row("echo_function", "echo(nop)", unlike="lock"),
    ],
    "Native code calls Python": [
        Row("apply_callback", "apply(callback_any, 1)", unlike="lock", twins="library_apply_callback, library_apply_callback_gil_kept"),
        *_twins("apply_callback", "library_apply(callback_any, 1)", 0.7),
        Row("apply_converted", "apply(packed_any, 1)", unlike="lock", twins="library_apply_converted, library_apply_converted_gil_kept"),
        *_twins("apply_converted", "library_apply(packed_any, 1)", 0.7),
        Row("callback_0", "=loop0(callback_0, {n})", label="callback, no argument", unlike="lock", twins=CALLBACKS.format("0")),
        Row("callback_1_int", "=loop1(callback_1, {n}, 1)", unlike="lock", twins=CALLBACKS.format("3_ints")),
        Row("callback_3_ints", "=loop3(callback_3, {n}, 1, 2, 3)", label="callback, 3 ints", unlike="lock",
            twins=CALLBACKS.format("3_ints")),
        Row("callback_str_64", "=loop_str(callback_text, {n}, text)", unlike="lock", twins=CALLBACKS.format("3_ints")),
        Row("callback_3_tensors", "=loop_arrays(callback_3, {n}, ta, tb, tc)", unlike="lock",
            twins=CALLBACKS.format("3_tensors")),
        *_twins("0", "=library_loop(callback_0, {n})", 0.7, "C library, callback", "callback_from_library"),
        *_twins("3_ints", "=library_loop(callback_3, {n}, 1, 2, 3)", 0.7, prefix="callback_from_library"),
        *_twins("3_tensors", "=library_loop(callback_3, {n}, ta, tb, tc)", 0.7, prefix="callback_from_library"),
    ],
    "Errors in Python": [
        Row("py_error_caught", CATCH.format("fail()")),
        Row("native_error_caught", CATCH.format("raise_error('ValueError', 'told so')"), label="native error, caught",
            unlike="error", twins="library_error_caught"),
        Row("library_error_caught", CATCH_TYPE.format("library_add(None, None, None)"), 0.05, label="C library, error caught"),
        Row("python_error_through_native", CATCH.format("apply(fail)"), label="Python error through native", unlike="lock",
            twins="python_error_through_library"),
        Row("python_error_through_library", CATCH.format("library_apply(fail)"), 0.05),
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
        Row("tensor_from_jax", "=jax_time()", limit_ns=3e3),
        Row("numpy_from_tensor", "numpy_from_dlpack(ta)"),
        # As the documentation of each package says: `tensor.numpy()`, and `numpy.from_dlpack(tensor)`.
        Row("tensor_to_numpy", "to_numpy(ta)", 0.5),
        Row("tensor_shape", "ta.shape"),
        Row("object_construct", "IntPair(1, 2)", 0.2, label="construct a native object"),
        Row("object_construct_python_defined", "PythonPair(1, 2)", 0.2),
        Row("object_field_get_python_defined", "python_pair.a"),
        Row("object_field_set_python_defined", "python_pair.a = 3"),
        Row("object_field_get", "pair.a"),
        Row("object_method", "pair.sum()"),
        Row("get_global_func", "get('testing.nop')", 0.3),
        # The peer has no counterpart of these two.
        Row("function_signature", "signature(echo)"),
        Row("type_info_class", "type_info('testing.IntPair').cls"),
    ],
    # Each row runs in a fresh process that has imported NumPy, with a new copy of the library. `first` includes the first use of
    # the runtime.
    "Loading libraries": [
        Row("load", "=load_time('kernels.so', 'load')", 1.5, label="load a C library"),
        Row("load_first", "=load_time('kernels.so', 'first')"),
        Row("load_first_cpp", "=load_time('host_plugin.so', 'first')"),
        Row("load_again", "=load_time('kernels.so', 'again')", 1.0),
        Row("load_and_call", "=load_time('kernels.so', 'and_call')"),
        Row("first_call", "=load_time('kernels.so', 'call')"),
    ],
    # A tree of objects of a frozen type defined in Python, whose fields are a name, an int, and an Array of nodes.
    "Graphs of objects, per node": [
        Row("graph_repr", "graph_repr(graph)", per=NODES),
        Row("graph_structural_equal", "structural_equal(graph, graph_twin)", 0.5, per=NODES,
            label="structural equality, per node"),
        Row("graph_structural_hash", "structural_hash(graph)", 0.5, per=NODES,
            label="structural hash, per node"),
        Row("graph_recursive_equal", "recursive_equal(graph, graph_twin)", 0.5, per=NODES),
        Row("graph_recursive_hash", "recursive_hash(graph)", 0.5, per=NODES),
        Row("graph_deep_copy", "deep_copy(graph)", 0.5, per=NODES),
        Row("graph_walk_all", "structural_walk(graph, (Node, see))", 0.5, per=NODES,
            label="walk with a Python callback, per node"),
        Row("graph_walk_none", "structural_walk(graph, (Other, see))", 0.5, per=NODES),
        Row("graph_map_leaves", "structural_map(graph, (Node, rename))", 0.5, per=NODES),
        Row("graph_map_none", "structural_map(graph, (Other, rename))", 0.5, per=NODES),
        # Trees of a type whose fields can be set, and of a type that Rust or C++ defines.
        *(
            Row(f"graph_{name}_{kind}", statement.format(kind), 0.5, per=NODES)
            for kind in ("mutable", "native")
            for name, statement in (
                ("structural_equal", "structural_equal({0}, {0}_twin)"),
                ("structural_hash", "structural_hash({0})"),
                ("walk_none", "structural_walk({0}, (Other, see))"),
                ("map_none", "structural_map({0}, (Other, rename))"),
            )
        ),
        # These two rows are per byte of JSON: 1 ns is 1,000 MB/s.
        Row("graph_save_json_per_byte", "save_json(graph)", 0.5, per=JSON_BYTES),
        Row("graph_load_json_per_byte", "load_json(json_text)", 0.5, per=JSON_BYTES,
            label="load JSON, per byte"),
    ],
    # Libraries that apache-tvm has compiled, in its runtime and in anyfn: `compiled_calls.py`.
    # Two threads of the processor are given to each side.
    "Compiled code beside apache-tvm": _plain(
        "tvm_3_numpy tvm_3_numpy_copied tvm_3_tensors tvm_wrong_shape_caught tvm_call_packed tvm_load tvm_first_call"
        " parallel_launch parallel_launch_after_1_ms parallel_1_thread parallel_2_threads",
        tvm_3_numpy=0.3,
        parallel_launch=1.0,
        parallel_launch_after_1_ms=1.0,
        parallel_2_threads=1.0,
    ),
    # The rows of `kernels.py`.
    KERNELS: [
        Row("matmul_f32_512", against="numpy"),
        Row("matmul_f32_1024", against="numpy", budget=1.0, label="matrix product, f32 1024"),
        Row("matmul_f32_2048", against="numpy"),
        Row("matmul_f32_1000_999_1001", against="numpy"),
        Row("matmul_f64_1024", against="numpy"),
        Row("matmul_bias_relu_f32_1024", against="numpy"),
        Row("matmul_f32_512_2_cores", against="numpy"),
        # Two cores: at least 1.8 times as fast as one.
        Row("matmul_f32_1024_2_cores", against="matmul_f32_1024", budget=0.556, label="matrix product, f32 1024, two cores"),
        Row("matmul_f32_2048_2_cores", against="matmul_f32_2048", budget=0.556),
        Row("add_16m", against="numpy", budget=1.0, label="add, 16 Mi floats"),
        Row("add_16m_2_cores", against="numpy"),
        Row("softmax_4096_1024", against="numpy", label="softmax, 4096 x 1024"),
        Row("layernorm_4096_1024", against="numpy", label="layer norm, 4096 x 1024"),
        Row("sum_rows_4096_1024", against="numpy"),
        Row("sum_columns_4096_1024", against="numpy", label="sum of columns, 4096 x 1024"),
        Row("sum_all_4096_1024", against="numpy", label="sum, 4096 x 1024"),
        Row("sum_all_4096_1024_2_cores", against="numpy"),
        Row("transpose_2048", against="numpy", label="transpose, 2048 x 2048"),
        Row("conv2d_3x3_64_64_56", against="numpy", label="convolution, 3 x 3"),
    ],
    # The rows of `tensors.py`. The results are new tensors, except in `copy_into`.
    COPIES: [
        Row("copy_compact_f32_16mib", against="numpy", budget=1.0),
        Row("copy_transposed_f32_2048", against="numpy", budget=1.0, label="copy, transposed, f32 2048 x 2048"),
        Row("copy_transposed_f64_1024", against="numpy", budget=1.0),
        Row("copy_transposed_f16_2048", against="numpy", budget=1.0),
        Row("copy_transposed_u8_2048", against="numpy", budget=1.0),
        Row("copy_transposed_f32_64", against="numpy", budget=1.0),
        Row("copy_nchw_to_nhwc_f32", against="numpy", budget=1.0, label="copy, NCHW to NHWC"),
        Row("copy_every_second_f32", against="numpy", budget=1.0),
        Row("copy_every_second_column_f32", against="numpy", budget=1.0),
        Row("copy_reversed_f32", against="numpy", budget=1.0),
        Row("copy_columns_f32", against="numpy", budget=1.0),
        Row("copy_into_transposed_f32_2048", against="numpy", budget=1.0),
        Row("cast_f32_to_f64", against="numpy", budget=1.0),
        Row("cast_f64_to_f32", against="numpy", budget=1.0, label="cast, f64 to f32"),
        Row("cast_f32_to_f16", against="numpy", budget=1.0),
        Row("cast_f16_to_f32", against="numpy", budget=1.0),
        Row("cast_i32_to_f32", against="numpy", budget=1.0),
        Row("cast_u8_to_f32", against="numpy", budget=1.0, label="cast, u8 to f32"),
        Row("cast_i64_to_i32", against="numpy", unlike="exact"),
        Row("cast_f32_to_i32", against="numpy", unlike="exact"),
        Row("cast_transposed_u8_to_f32", against="numpy", budget=1.0),
    ],
    # The rows of `src/sessions.rs` and `sessions.py`. The sockets of `polled` poll before they block, like sessions.
    SESSIONS: [
        Row("session_call_0", against="polled", budget=1.2, label="call, no argument"),
        Row("session_call_3_ints", against="polled", budget=1.2, label="call, 3 ints"),
        Row("session_call_0_python", against="polled", budget=1.2, label="call from Python, no argument"),
        Row("session_call_3_ints_python", against="polled", budget=1.2),
        Row("session_callback_0", against="polled", label="callback, no argument"),
        Row("session_two_threads_per_call", against="polled"),
        Row("session_four_threads_per_call", against="raw", budget=1.5, label="four threads, per call"),
        Row("session_up_4kib", against="polled"),
        Row("session_down_4kib", against="polled", label="4 KiB down"),
        # At least half of the bandwidth.
        Row("session_up_64mib", against="raw", budget=2.0, label="64 MiB up"),
        Row("session_down_64mib", against="raw", budget=2.0, label="64 MiB down"),
        Row("session_connect", against="raw", unlike="connect", label="connect"),
        Row("session_call_0_key", against="polled", unlike="cipher", label="call with a key"),
        Row("session_call_3_ints_key", against="polled", unlike="cipher"),
        Row("session_callback_0_key", against="polled", unlike="cipher"),
        Row("session_two_threads_per_call_key", against="polled", unlike="cipher"),
        Row("session_four_threads_per_call_key", against="raw", unlike="cipher"),
        Row("session_up_4kib_key", against="raw", budget=2.0),
        Row("session_down_4kib_key", against="raw", budget=2.0, label="4 KiB down with a key"),
        Row("session_up_64mib_key", against="raw", budget=2.0, label="64 MiB up with a key"),
        Row("session_down_64mib_key", against="raw", budget=2.0, label="64 MiB down with a key"),
        Row("session_connect_key", against="raw", unlike="connect"),
    ],
    # The rows of `src/devices.rs`. A copy of 4 bytes and a launch cost what they cost beyond the work; 64 MiB shows the bandwidth.
    DEVICES: [
        Row("device_launch", against="raw", budget=1.2),
        Row("device_up_4b", against="raw"),
        Row("device_down_4b", against="raw"),
        Row("device_up_64mib", against="raw", budget=1.1),
        Row("device_down_64mib", against="raw", budget=1.1),
        Row("device_copy_64mib", against="raw", budget=1.1),
    ],
    # The rows of `device_kernels.py`. At least half as fast as a kernel written by hand.
    DEVICE_KERNELS: [
        Row("device_matmul_f32_256", against="hand", budget=2.0),
        Row("device_matmul_f32_512", against="hand", budget=2.0),
        Row("device_softmax_1024_1024", against="hand", budget=2.0),
        Row("device_add_4m", against="hand"),
        Row("device_transpose_1024", against="hand"),
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
        Row("four_threads_per_call", "=threads(4, nop1, {n}, 1)", unlike="lock",
            twins="four_threads_library_call, four_threads_library_call_gil_kept"),
        *_twins("call", "=threads(4, library_nop, {n}, 1)", 1.0, prefix="four_threads_library"),
        *_twins("call", "=threads(2, library_nop, {n}, 1)", 1.0, prefix="two_threads_library"),
        Row("two_threads_get_global_func", "=threads(2, get, {n}, 'testing.nop')", 1.0),
        Row("two_threads_array_index", "=threads(2, array.__getitem__, {n}, 50)", 1.0),
        Row("two_threads_list_index", "=threads(2, items.__getitem__, {n}, 50)", 1.0),
        Row("two_threads_map_lookup", "=threads(2, map_int.__getitem__, {n}, 50)", 1.0),
        Row("async_call", "=async_calls(2000)", unlike="async"),
        Row("import_over_numpy", "=import_time()", limit_ns=15e6),
    ],
    # Bytes that one of many objects occupies, with everything that belongs to it: `python_calls.bytes_each`.
    MEMORY: [
        Row("memory_object", "=bytes_each('pair')", 1.0),
        Row("memory_object_python_defined", "=bytes_each('python_pair')", 1.0),
        Row("memory_object_in_array", "=bytes_each('pair_in_array')", 1.0, per=100),
        Row("memory_function", "=bytes_each('function')", 1.0),
        Row("memory_function_looked_up", "=bytes_each('looked_up')", 1.0),
        Row("memory_function_of_library", "=bytes_each('of_library')", 1.0),
        Row("memory_tensor_from_numpy", "=bytes_each('tensor')", 1.0),
        Row("memory_array_4", "=bytes_each('array_4')", 1.0),
        Row("memory_array_1000_per_item", "=bytes_each('array_1000')", 1.0, per=1000),
        Row("memory_array_of_str_64_per_item", "=bytes_each('array_text')", 1.0, per=100),
        Row("memory_list_1000_per_item", "=bytes_each('list_1000')", 1.0, per=1000),
        Row("memory_map_4", "=bytes_each('map_4')", 1.0),
        Row("memory_map_1000_per_item", "=bytes_each('map_1000')", 1.0, per=1000),
        Row("memory_dict_1000_per_item", "=bytes_each('dict_1000')", 1.0, per=1000),
    ],
}
# Sections that `python_calls.py` measures. Other programs measure the remaining sections.
PYTHON_SECTIONS = [name for name, rows in SECTIONS.items() if rows[0].statement]
