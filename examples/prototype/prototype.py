"""Defines a new IR node, a pass that creates it and a pass that lowers it, in one file and without a change to anyfn."""

import anyfn
import numpy as np
from anyfn import te, tir, transform


@anyfn.object("prototype.FusedMulAdd", structural="tree", frozen=True)
class FusedMulAdd(tir.PrimExpr):
    """The value a * b + c, rounded once."""

    a: tir.PrimExpr
    b: tir.PrimExpr
    c: tir.PrimExpr


def fused(node):
    for product, rest in ((node.a, node.b), (node.b, node.a)):
        if isinstance(product, tir.Mul) and str(node.dtype).startswith("float"):
            return FusedMulAdd(node.dtype, product.a, product.b, rest)
    return node


@transform.prim_func_pass
def fuse(func):
    return anyfn.structural_map(func, (tir.Add, fused))


@transform.prim_func_pass
def lower_fused(func):
    def lower(node):
        suffix = "f" if str(node.dtype) == "float32" else ""
        return tir.call_extern("fma" + suffix, node.a, node.b, node.c, dtype=node.dtype)

    return anyfn.structural_map(func, (FusedMulAdd, lower))


x, y, z = (te.placeholder((1000,), name=name) for name in "XYZ")
w = te.compute((1000,), lambda i: x[i] * y[i] + z[i], name="W")
func = te.create_prim_func([x, y, z, w], name="axpy")
pipeline = transform.default_pipeline()
pipeline.insert_before("lower_blocks", fuse)
pipeline.insert_after("simplify", lower_fused)
pipeline.print_after("fuse", to=lambda title, text: print(text))
axpy = anyfn.build(func, pipeline=pipeline)

a, b, c = np.random.default_rng(0).standard_normal((3, 1000)).astype("float32")
out = np.empty_like(a)
axpy(a, b, c, out)
exact = (a.astype("float64") * b + c).astype("float32")
assert (out == exact).all() and "FusedMulAdd" in str(fuse(func)) and anyfn.structural_equal(fuse(func), fuse(func))
print("right")
