"""Tests of loops that are bound to thread axes of a device, and of memory that the threads of a block share."""

import numpy as np
import pytest

import anyfn
from anyfn import tir


def reverse():
    """Returns a function that reverses each row of a matrix through the shared memory of a block of threads."""
    return tir.parse(
        """
        def reverse(A: Buffer((n, 64), float32), B: Buffer((n, 64), float32)):
            for i in bind("blockIdx.x", n):
                S = alloc((64,), float32, scope="shared")
                for j in bind("threadIdx.x", 64):
                    S[j] = A[i, j]
                for k in bind("threadIdx.x", 64):
                    B[i, k] = S[63 - k]
        """
    )


def test_bound_loops_are_printed_and_read():
    func = reverse()
    assert anyfn.structural_equal(tir.parse(str(func)), func)
    assert (func.body.kind, func.body.body.buffer.scope) == ("blockIdx.x", "shared")
    assert not anyfn.structural_equal(tir.parse(str(func).replace("blockIdx.x", "blockIdx.y")), func)
    with pytest.raises(ValueError, match="`threadIdx.w` is not a thread axis; known axes are `blockIdx.x`"):
        tir.parse(str(func).replace("threadIdx.x", "threadIdx.w"))


def test_bound_loops_are_interpreted():
    x = np.random.default_rng(0).standard_normal((3, 64)).astype("float32")
    out = np.zeros((3, 64), "float32")
    tir.interpret(reverse(), x, out)
    assert (out == x[:, ::-1]).all()


def test_bound_loops_are_made_of_parts():
    shared = tir.decl_buffer((4,), name="S", scope="shared")
    inner = tir.for_loop(4, lambda j: shared.store(1.0, j), kind="threadIdx.x", name="j")
    func = tir.parse("def f(n: int32):\n    n").with_body(
        tir.for_loop(2, lambda i: tir.Allocate(shared, inner), kind="blockIdx.x")
    )
    tir.verify(func)
    assert 'for i in bind("blockIdx.x", 2):' in str(func) and 'for j in bind("threadIdx.x", 4):' in str(func)
    with pytest.raises(ValueError, match="unknown memory scope `shelf`; known scopes are global, shared, local"):
        tir.decl_buffer((4,), scope="shelf")


def test_the_host_refuses_them():
    with pytest.raises(ValueError, match="loop `i` is bound to blockIdx.x, but C code for the host has no thread axes"):
        anyfn.source(reverse())
    text = "def f(A: Buffer((8,), float32)):\n    S = alloc((8,), float32, scope=\"shared\")\n    S[0] = A[0]\n    A[1] = S[0]"
    with pytest.raises(ValueError, match="buffer `S` is shared by the threads of a block, but C code for the host has no thread blocks"):
        anyfn.source(tir.parse(text))
