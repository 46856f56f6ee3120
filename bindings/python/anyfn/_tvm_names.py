"""Well-known names of Apache TVM that anyfn does not have, each with a hint that describes what to use instead.

Modules and classes read this table only after the lookup of a name has failed. Names that exist here as in Apache TVM are
ordinary attributes. ``docs/coming-from-tvm.md`` compares both.
"""

_PASSES = {
    "BF16ComputeLegalize": "widen_floats",
    "CompactBufferAllocation": "compact_buffers",
    "ConvertBlocksToOpaque": "lower_blocks",
    "HoistExpression": "hoist",
    "HoistIfThenElse": "hoist",
    "InstrumentBoundCheckers": "check_bounds",
    "LowerInitBlock": "lower_blocks",
    "LowerOpaqueBlock": "lower_blocks",
    "LowerTVMBuiltin": "lower_packed_calls",
    "MakePackedAPI": "make_packed_api",
    "PlanAndUpdateBufferAllocationLocation": "place_allocations",
    "RemoveNoOp": "simplify",
    "Simplify": "simplify",
    "StmtSimplify": "simplify",
    "StorageRewrite": "share_buffers",
    "UnrollLoop": "unroll",
    "VectorizeLoop": "vectorize",
}

_PASS_CONTEXT = "pass `pipeline=` or `passes=` to `anyfn.build`; `anyfn.transform.Pipeline` has the list of passes"
_INSTRUMENT = (
    "call `anyfn.transform.Pipeline.watch`, `anyfn.transform.Pipeline.print_after`, `anyfn.transform.Pipeline.dump` or "
    "`anyfn.transform.Pipeline.times`"
)
_TE_SCHEDULE = "schedule the function: `anyfn.tir.Schedule(te.create_prim_func([..]))`; Apache TVM has removed te schedules, too"
_TRACKER = "use `anyfn.rpc.tracker`, whose `request` returns a session with a device"
_NO_GRAPHS = "models as graphs are not supported; describe functions with `anyfn.te` or `anyfn.tir`, and compile them with `anyfn.build`"
_NO_TUNER = "there is no tuner; `anyfn.build` schedules by `anyfn.tir.default_schedule`, and `anyfn.tir.Schedule` by hand"
_NO_SAMPLING = "there is no tuner; choose the factors and call `anyfn.tir.Schedule.split`"
_NO_INTRINSICS = "there are no tensor intrinsics; call C code with `anyfn.tir.call_extern`, or write a pass with `anyfn.transform.prim_func_pass`"
_IMMUTABLE = "modules of the IR are immutable; create a new one: `anyfn.tir.IRModule({**module.functions, name: func})`"
_BLOCKS = "use `anyfn.tir.Schedule.get_blocks`, which returns the names of all blocks"
_LAYOUT = "use `anyfn.tir.Schedule.transform_layout`"


def _device(kind: str) -> str:
    return f'use `anyfn.device("{kind}")`'


HINTS = {
    "module 'anyfn'": {
        "Function": "use `anyfn.PackedFunc`",
        "IRModule": "use `anyfn.tir.IRModule`",
        "NDArray": "use `anyfn.Tensor`",
        "TVMError": "use `anyfn.Error`",
        "arith": "use `anyfn.tir.Analyzer`",
        "auto_scheduler": _NO_TUNER,
        "autotvm": _NO_TUNER,
        "compile": "use `anyfn.build`",
        "contrib": "libraries are built by `anyfn.Module.export` and `anyfn.bundle`, whose options name compilers and linkers",
        "context": "use `anyfn.device`",
        "driver": "use `anyfn.build`, `anyfn.lower` and `anyfn.source`",
        "error": "errors are built-in exceptions or derive from `anyfn.Error`; `anyfn.register_error` registers further classes",
        "ext_dev": _device("ext_dev"),
        "gpu": "use `anyfn.cuda`",
        "hexagon": _device("hexagon"),
        "init_ffi_api": "use `anyfn._ffi._init_api`",
        "instrument": _INSTRUMENT,
        "ir": "the classes of the IR are in `anyfn.tir`, and passes in `anyfn.transform`",
        "metal": _device("metal"),
        "meta_schedule": _NO_TUNER,
        "opencl": _device("opencl"),
        "parser": "use `anyfn.tir.parse`",
        "register_global_func": "use `anyfn.register_func`",
        "relax": _NO_GRAPHS,
        "relay": _NO_GRAPHS,
        "rocm": _device("rocm"),
        "runtime": "its functions are in `anyfn`, such as `anyfn.convert`, `anyfn.tensor` and `anyfn.load_module`",
        "s_tir": "schedules are in `anyfn.tir`, such as `anyfn.tir.Schedule`, and passes in `anyfn.transform`",
        "sym": "use `anyfn.tir.Analyzer`",
        "target": "use `anyfn.Target`",
        "tirx": "use `anyfn.tir`",
        "topi": "there is no library of operators; describe them with `anyfn.te`",
        "use_torch_stream": "use `anyfn.Stream`",
        "vpi": _device("vpi"),
        "vulkan": _device("vulkan"),
    },
    "module 'anyfn.te'": {
        "Schedule": _TE_SCHEDULE,
        "Stage": _TE_SCHEDULE,
        "CommReducer": "use `anyfn.te.comm_reducer`",
        "ScanOp": "write the loop as a statement with `anyfn.te.extern`",
        "create_schedule": _TE_SCHEDULE,
        "decl_buffer": "use `anyfn.tir.decl_buffer`",
        "decl_tensor_intrin": _NO_INTRINSICS,
        "div": "use `/`, `anyfn.tir.truncdiv` or `anyfn.tir.floordiv`",
        "extern_primfunc": "pass the body of the function to `anyfn.te.extern`",
        "hybrid": "write the loops with `anyfn.te.extern`, or as source for `anyfn.tir.parse`",
        "isfinite": 'use `anyfn.tir.abs(x) < anyfn.tir.infinity("float32")`',
        "isinf": 'use `anyfn.tir.abs(x) == anyfn.tir.infinity("float32")`',
        "lower": "use `anyfn.lower`",
        "scan": "write the loop as a statement with `anyfn.te.extern`",
        "tag_scope": "operations have no tags; annotate blocks with `anyfn.tir.Schedule.annotate`",
        "thread_axis": 'bind loops by the name of the thread axis: `anyfn.tir.Schedule.bind(loop, "threadIdx.x")`',
    },
    "module 'anyfn.tir'": {
        "AttrStmt": "annotate loops and blocks with `anyfn.tir.Schedule.annotate`, or a function with `anyfn.tir.PrimFunc.with_attr`",
        "BitwiseAnd": "use `anyfn.tir.BitAnd`",
        "BitwiseOr": "use `anyfn.tir.BitOr`",
        "BitwiseXor": "use `anyfn.tir.BitXor`",
        "LShift": "use `anyfn.tir.ShiftLeft`",
        "PassContext": _PASS_CONTEXT,
        "RShift": "use `anyfn.tir.ShiftRight`",
        "SBlock": "use `anyfn.tir.Block`",
        "SBlockRealize": "use `anyfn.tir.BlockRealize`",
        "SizeVar": "use `anyfn.tir.size_var`",
        "TensorIntrin": _NO_INTRINSICS,
        "While": "use `anyfn.tir.for_loop` with a known extent, or `anyfn.tir.call_extern`",
        "analysis": "use `anyfn.tir.verify` and `anyfn.tir.Analyzer`",
        "bitwise_and": "use `&`, which creates an `anyfn.tir.BitAnd`",
        "bitwise_not": "use `~x`; see `anyfn.tir.PrimExpr`",
        "bitwise_or": "use `|`, which creates an `anyfn.tir.BitOr`",
        "bitwise_xor": "use `^`, which creates an `anyfn.tir.BitXor`",
        "build": "use `anyfn.build`",
        "call_cpacked": "use `anyfn.tir.call_packed`",
        "call_intrin": "use `anyfn.tir.call_extern`",
        "call_pure_extern": "use `anyfn.tir.call_extern`",
        "ceildiv": "use `(a + b - 1) // b`, which creates an `anyfn.tir.FloorDiv`",
        "comm_reducer": "use `anyfn.te.comm_reducer`",
        "div": "use `/`, `anyfn.tir.truncdiv` or `anyfn.tir.floordiv`",
        "isfinite": 'use `anyfn.tir.abs(x) < anyfn.tir.infinity("float32")`',
        "isinf": 'use `anyfn.tir.abs(x) == anyfn.tir.infinity("float32")`',
        "layout": _LAYOUT,
        "schedule": "use `anyfn.tir.Schedule`",
        "shift_left": "use `<<`, which creates an `anyfn.tir.ShiftLeft`",
        "shift_right": "use `>>`, which creates an `anyfn.tir.ShiftRight`",
        "stmt_functor": "use `anyfn.structural_walk` and `anyfn.structural_map`",
        "stmt_seq": "use `anyfn.tir.seq`",
        "sum": "use `anyfn.te.sum`",
    },
    "module 'anyfn.transform'": {
        **{name: f'use `anyfn.transform.get("{ours}")`' for name, ours in _PASSES.items()},
        "Apply": "use `anyfn.transform.prim_func_pass`",
        "BindTarget": "pass the target to `anyfn.build`",
        "ModulePass": "use `anyfn.transform.module_pass`",
        "PassContext": _PASS_CONTEXT,
        "PassInfo": "`anyfn.transform.Pass` has the fields `name` and `kind`",
        "PassInstrument": _INSTRUMENT,
        "PrimFuncPass": "use `anyfn.transform.prim_func_pass`",
        "PrintIR": "call `anyfn.transform.Pipeline.print_after`",
        "function_pass": "use `anyfn.transform.prim_func_pass`",
    },
    "module 'anyfn.rpc'": {
        "LocalSession": "use `anyfn.rpc.local`",
        "PopenSession": "use `anyfn.rpc.spawn`",
        "RPCSession": "use `anyfn.rpc.Session`",
        "TrackerSession": _TRACKER,
        "connect_tracker": _TRACKER,
    },
    "module 'anyfn.nd'": {
        "context": "use `anyfn.device`",
        "full": "use `anyfn.full`",
        "from_dlpack": "use `anyfn.from_dlpack`",
        "from_numpy": "use `anyfn.from_dlpack`, which shares the memory of the array",
        "gpu": "use `anyfn.cuda`",
        "numpyasarray": "use `anyfn.from_dlpack`, which shares the memory of the array",
        "sparse": "tensors are dense: use `anyfn.tensor`",
        "zeros": "use `anyfn.zeros`",
    },
    "'Module' object": {
        "get_source": "use `anyfn.Module.inspect_source`",
        "imported_modules": "use `anyfn.Module.imports`",
        "save": "use `anyfn.Module.export`",
    },
    "'Tensor' object": {
        "asnumpy": "use `anyfn.Tensor.numpy`",
    },
    "'IRModule' object": {
        "from_expr": "use `anyfn.tir.IRModule({name: func})`",
        "functions_items": "use `module.functions.items()`; see `anyfn.tir.IRModule`",
        "get_global_var": "functions have their names as keys: use `module[name]`; see `anyfn.tir.IRModule`",
        "get_global_vars": "functions have their names as keys: use `module.functions`; see `anyfn.tir.IRModule`",
        "update": _IMMUTABLE,
        "update_func": _IMMUTABLE,
        "with_attr": "create a new module: `anyfn.tir.IRModule(module.functions, {**module.attrs, name: value})`",
    },
    "'Schedule' object": {
        "add_unit_loop": "use `anyfn.tir.Schedule.split` with a factor of 1",
        "blockize": _NO_INTRINSICS,
        "enter_postproc": _NO_TUNER,
        "get": "loops and blocks are values, not random variables: `anyfn.tir.Schedule.get_loops` returns the variables of loops",
        "get_child_blocks": _BLOCKS,
        "get_consumers": _BLOCKS,
        "get_output_blocks": _BLOCKS,
        "get_producers": _BLOCKS,
        "get_sblock": "use `anyfn.tir.Schedule.get_block`",
        "pad_einsum": "use `anyfn.tir.Schedule.pad_axes`",
        "sample_categorical": _NO_SAMPLING,
        "sample_compute_location": _NO_SAMPLING,
        "sample_perfect_tile": _NO_SAMPLING,
        "seed": _NO_TUNER,
        "state": "use `anyfn.tir.Schedule.func`, which returns the function in its current form",
        "storage_align": _LAYOUT,
        "tensorize": _NO_INTRINSICS,
        "tile": "use `anyfn.tir.Schedule.split` for both loops, then `anyfn.tir.Schedule.reorder`",
        "transform_block_layout": _LAYOUT,
        "unannotate": "discard the annotation by continuing with an earlier `anyfn.tir.Schedule.copy`",
        "work_on": "a schedule has one function: create an `anyfn.tir.Schedule` for each",
    },
}
