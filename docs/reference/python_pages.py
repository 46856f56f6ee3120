"""Lists what the pages of the Python reference contain, grouped by task, and writes these pages.

The text of each entry comes from the source: `docs/site.py` has mkdocstrings read docstrings and annotations. A test compares the
list with the public names of the package (`bindings/python/tests/test_reference.py`).
"""


def of_tir(names):
    """Returns names of the module `tir` with the name of the module."""
    return " ".join(f"tir.{name}" for name in names.split())


# Per page: file name, title, introduction, and sections: heading (None if the page has only one) and names in the package.
PAGES = [
    (
        "functions",
        "Functions",
        "Guides: [the Python package](../../python.md), [values](../../python-values.md), [async calls](../../async.md).",
        [
            (
                "Calling",
                "get_global_func list_global_func_names PackedFunc check_signals set_async_threads",
            ),
            ("Defining", "register_func remove_global_func convert"),
            ("Values", "as_map to_python register_converter remove_converter"),
            (
                "Annotations",
                "typing.BytesLike typing.DTypeLike typing.DeviceLike typing.ErrorLike "
                "typing.FloatLike typing.FloatOfNumPy typing.HandleLike typing.IntLike "
                "typing.ShapeLike typing.SupportsDLPack typing.TensorLike typing.packed",
            ),
            ("Building extensions", "get_include"),
        ],
    ),
    (
        "errors",
        "Errors",
        "Guide: [errors](../../errors.md).",
        [(None, "Error ErrorObject register_error")],
    ),
    (
        "objects",
        "Objects",
        "Guides: [objects](../../objects.md), [operations](../../operations.md), [rewriting](../../rewriting.md), "
        "[saving](../../saving.md).",
        [
            (
                "Types",
                "Object object field register_object type_info _reflection.TypeInfo _reflection.FieldInfo "
                "_reflection.MethodInfo register_type_attr register_alias",
            ),
            ("Copies", "replace deep_copy"),
            (
                "Comparison",
                "structural_equal structural_hash get_first_structural_mismatch StructuralKey "
                "AccessPath AccessStep recursive_equal recursive_less recursive_hash",
            ),
            (
                "Walking and rewriting",
                "structural_walk structural_map structural_visit structural_mutate WalkResult "
                "VisitInterrupt DefRegionKind StructuralVisitor StructuralMutator",
            ),
            ("Saving", "save_json load_json json_metadata save_html"),
        ],
    ),
    (
        "containers",
        "Containers",
        "Guide: [containers](../../python.md#containers).",
        [(None, "Array List Map Dict Shape")],
    ),
    (
        "tensors",
        "Tensors and devices",
        "Guide: [tensors and devices](../../tensors.md).",
        [
            ("Tensors", "tensor empty zeros full from_dlpack const Tensor dtype"),
            ("Devices", "device cpu cuda devices Stream"),
            ("Names of Apache TVM", "nd.array nd.empty"),
        ],
    ),
    (
        "modules",
        "Modules and bundles",
        "Guides: [compiled libraries](../../compiled.md), [modules and bundles](../../bundles.md).",
        [
            ("Loading", "load_module Module system_lib watch Watch inspect_library"),
            ("Bundles", "bundle make_module register_module_loader cuda_module metal_module opencl_module vulkan_module"),
            ("Threads of compiled code", "num_threads set_num_threads set_parallel_launcher"),
        ],
    ),
    (
        "rpc",
        "Sessions (RPC)",
        "Guides: [sessions](../../rpc.md), [running a server](../../rpc-server.md), [sharing a pool of devices](../../tracker.md).",
        [
            ("Opening", "rpc.connect rpc.spawn rpc.local rpc.Session"),
            ("Serving", "rpc.serve rpc.Server rpc.make_key"),
            ("Pools of devices", "rpc.tracker rpc.Tracker rpc.Sessions"),
            ("Remote objects", "rpc.Tensor rpc.Device rpc.RemoteObject"),
        ],
    ),
    (
        "te",
        "Tensor expressions",
        "Guide: [tensor expressions](../../compiler.md). The functions of [`tir`](tir.md#functions-of-expressions), such as "
        "`tir.exp`, are also available in `te`.",
        [
            ("Defining", "te.placeholder te.compute te.extern te.reduce_axis te.create_prim_func"),
            ("Reductions", "te.sum te.prod te.min te.max te.comm_reducer"),
            (
                "Classes",
                "te.Tensor te.Operation te.PlaceholderOp te.ComputeOp te.ExternOp",
            ),
            ("Building", "build lower source tir.Target"),
        ],
    ),
    (
        "schedules",
        "Schedules",
        "Guides: [schedules](../../compiler.md#schedules), [steps by example](../../schedule-steps.md).",
        [
            (
                None,
                "tir.Schedule tir.Trace tir.ScheduleStep tir.IndexMap tir.default_schedule",
            )
        ],
    ),
    (
        "tir",
        "Tensor IR",
        "Guide: [source of the IR](../../ir-text.md).",
        [
            (
                "Functions and modules",
                "tir.PrimFunc tir.IRModule tir.Buffer tir.BufferRegion tir.parse tir.verify tir.interpret tir.Analyzer",
            ),
            ("TVMScript", "script"),
            (
                "Making nodes",
                "tir.var tir.size_var tir.const tir.decl_buffer tir.for_loop tir.seq tir.call_packed "
                "tir.call_extern tir.read_only",
            ),
            (
                "Functions of expressions",
                of_tir(
                    "select if_then_else all any isnan min max abs floordiv floormod truncdiv truncmod indexdiv indexmod power "
                    "pow min_value max_value infinity exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sigmoid erf sin cos tan "
                    "asin acos atan sinh cosh tanh asinh acosh atanh atan2 hypot copysign fmod floor ceil round nearbyint trunc"
                ),
            ),
            (
                "Expressions",
                of_tir(
                    "PrimExpr Var IterVar IntImm FloatImm StringImm Cast BinaryExpr Add Sub Mul Div Mod FloorDiv FloorMod Min Max "
                    "EQ NE LT LE GT GE And Or Not BitAnd BitOr BitXor ShiftLeft ShiftRight Select BufferLoad ProducerLoad Ramp "
                    "Broadcast Call Let Reduce"
                ),
            ),
            (
                "Statements",
                of_tir(
                    "Stmt BufferStore For Launch SeqStmt IfThenElse LetStmt Allocate Evaluate AssertStmt Block BlockRealize"
                ),
            ),
        ],
    ),
    (
        "transform",
        "Passes",
        "Guide: [passes](../../passes.md).",
        [
            (
                None,
                "transform.prim_func_pass transform.module_pass transform.Pass transform.as_pass "
                "transform.get transform.names transform.Pipeline transform.default_pipeline "
                "transform.Sequential",
            )
        ],
    ),
    (
        "debug",
        "Profiling and debugging",
        "Guides: [measuring and profiling](../../timing.md), [what keeps a library mapped](../../python.md#what-keeps-a-library-mapped). "
        "The module `anyfn.debug` has these functions, too.",
        [
            ("Measurement", "time_evaluator _measure.Timing profile _profile.Profile"),
            ("Diagnosis", "doctor mapped_libraries reap"),
            ("Live objects", "start_ledger live_handles live_handles_text"),
        ],
    ),
]


def names():
    """Returns the full names of all entries, in the order of the pages."""
    return [f"anyfn.{name}" for _, _, _, sections in PAGES for _, entries in sections for name in entries.split()]


def pages():
    """Yields the name of each page in the folder of the reference, and its source with directives of mkdocstrings."""
    for file, title, introduction, sections in PAGES:
        lines = [f"# {title}", "", introduction, ""]
        for heading, entries in sections:
            lines += [f"## {heading}", ""] if heading else []
            for name in entries.split():
                lines += [f"::: anyfn.{name}", "    options:", f"      heading_level: {3 if heading else 2}"]
                # Classes that only the package makes have no public name.
                lines += ["      show_root_full_path: false"] if name[0] == "_" else []
                lines += ["      members: false", ""] if name == "script" else [""]
        yield file + ".md", "\n".join(lines)
