"""States what bounds the rows that miss their budgets; the report prints the text of each row that is missed.

The texts contain no figures of the rows themselves, which the tables have, but what costs time or memory, and how much of it.
"""

_CALL = (
    "A call in Rust checks whether calls are observed and whether the result is an owned value, three instructions each, which the"
    " headers of C++ do without."
)
_GIL = (
    "Both sides release the GIL and acquire it again, which costs the same in both: 26 ns on an AMD EPYC, 40 to 90 ns on a virtual"
    " machine with an Intel Xeon. The row with the suffix `_gil_kept` has the rest."
)
_CALLBACK = (
    "CPython's own call of a function takes 17 ns, and acquiring the GIL, in the rows without `_gil_kept`, 33 ns or more (see"
    " `library_call_0`). Both are the same on both sides."
)
_KEY_4_KIB = (
    "Each end seals or opens 4 KiB, which takes the cipher microseconds. `raw` sends plain bytes over sockets that"
    " block, so its receiver is woken by the system, which sessions save by polling."
)
_CLASSIC = (
    "The limit is a time, which was set on an AMD EPYC. Each argument is checked, and converted from the form of TVM 0.8 to that of the"
    " current ABI."
)
_LOCKED = (
    "A field that may change has its own lock, because threads may set it meanwhile: one atomic exchange per field, and two more for"
    " the reference of an object in it. One lock per object would need another layout of objects."
)
_CAST = (
    "The loop writes each element once, as NumPy's does, in registers of 32 bytes. Floating-point numbers are also tested for NaN,"
    " of which the result has only one."
)
_64_MIB = (
    "The budget compares with the cipher alone. Each end also copies the bytes through a socket, and the receiver into untouched"
    " memory, on the same processor as the cipher."
)

# The text of a row, by its name.
_ADDON = (
    "The plain addon knows one function and its types. Both sides make the same calls of Node-API: one for the arguments, one for each"
    " number and one for the result. In a call without arguments, anyfn's asks for up to four arguments and for the data of the"
    " function (2 ns) and returns null, for which the plain addon needs no call (1 ns). The rest, 7 ns, does not depend on Node-API:"
    " the function is kept during the call, called through the C ABI and checks its arguments, and panics are caught. This applies to"
    " functions that were looked up by name; calls of others also pass the number of the function (5 ns)."
)

BOUNDS = {
    "js_call_0": _ADDON,
    "js_call_3_numbers": _ADDON,
    "call_nop_3_ints": _CALL,
    "two_threads_one_function": _CALL + " Nothing is shared that either thread writes.",
    "call_typed_add3": "The callee checks the number and the types of the arguments, the caller that of the result, as in C++.",
    "string_heap": "Each library counts the objects that it has created and freed, so that it is not unmapped too early: six"
    " instructions for each.",
    "array_iterate_per_item": "An iteration compares the type of each element before it reads it, two of seven instructions, because"
    " an Array of ints may contain bools and integers of more than 64 bits. C++ checks once, when the Array arrives.",
    "array_get": "As in an iteration, the type of the element is compared. An index that does not exist gives an error value, not an"
    " exception.",
    "cpp_call_0": "A call tests whether the function is NULL, and the status that the callee returns: four instructions. The peer's headers"
    " call a second entry point of functions that its own headers have made, which has no status and throws C++ exceptions. Functions"
    " of anyfn's headers have none, because code that was compiled with the peer's headers would then meet exceptions of another class.",
    "cpp_string_heap": "Almost all of the time is `malloc`, `memcpy` and `free`, which both sides call with the same sizes.",
    "cpp_array_iterate_per_item": "Both loops consist of the same four instructions.",
    "cpp_array_iterate_strings_per_item": "Each element is a new reference to its string. Its release reads the count first, and needs no"
    " atomic operation if the reference is the only one, which saves 5 ns for temporary objects. Here the Array has another"
    " reference, so the read comes in addition: three instructions, and a call of the function that releases shared objects.",
    "cpp_error_caught_with_stack": "Recording the functions on the stack takes four fifths of the time.",
    **dict.fromkeys(("library_call_0", "library_call_1_int", "library_call_3_ints", "library_call_8_ints"), _GIL),
    **dict.fromkeys(("library_call_3_numpy", "library_call_3_tensors", "library_echo_str_64", "compiled_attribute_3_numpy"), _GIL),
    "library_apply_callback": _CALLBACK,
    "library_apply_callback_gil_kept": _CALLBACK,
    "c_classic_call_3": _CLASSIC,
    "c_classic_call_4": _CLASSIC,
    "list_append_1000_per_item": "A List is locked by each operation: one atomic exchange, which takes most of the time. The peer's List has"
    " no lock, and threads that change it corrupt it. `extend` takes the lock once.",
    "session_four_threads_per_call": "The threads share one connection, whose replies one of them reads for all; each thread of `raw` has its own.",
    "session_up_4kib_key": _KEY_4_KIB,
    "session_down_4kib_key": _KEY_4_KIB,
    "build_again_fresh": "The first build of a process also loads the compiler's library, and reads the result of the earlier build from a file.",
    "callback_from_library_0": _CALLBACK,
    "callback_from_library_0_gil_kept": _CALLBACK,
    "callback_from_library_3_ints": _CALLBACK,
    "load": "The library refers to symbols of the runtime, which is not visible to the whole process. So a generated library is loaded"
    " with it: eight system calls, one more mapping, and one page that the dynamic loader copies. The dynamic loader fixes where a"
    " library looks up its symbols when it loads it, so libraries cannot share one.",
    "load_again": "One system call asks whether the file is still that of the loaded library or a newer build.",
    "graph_structural_equal_mutable": _LOCKED,
    "graph_structural_hash_mutable": _LOCKED,
    "cast_f32_to_f64": _CAST,
    "cast_f64_to_f32": _CAST,
    "cast_i32_to_f32": _CAST,
    "session_up_64mib_key": _64_MIB,
    "session_down_64mib_key": _64_MIB,
    "memory_object_python_defined": "32 bytes are room for `__dict__` and weak references, which Python adds to classes without"
    " `__slots__`. Each field has 16 bytes, a value with its type and lock, where tvm_ffi has 8 for an int.",
}
