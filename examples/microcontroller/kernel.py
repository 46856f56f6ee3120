"""Compiles a dense layer for the Cortex-M4F to an object file: `kernel.py dense.o`."""

import sys

import anyfn
from anyfn import te, tir

M, K, N = 8, 32, 16
OPTIONS = ["-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-O2", "-fno-pic", "-ffunction-sections", "-fdata-sections"]

x, w, bias = te.placeholder((M, K), name="x"), te.placeholder((K, N), name="w"), te.placeholder((N,), name="bias")
k = te.reduce_axis((0, K), name="k")
product = te.compute((M, N), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="product")
relu = te.compute((M, N), lambda i, j: tir.max(product[i, j] + bias[j], 0), name="relu")
dense = te.create_prim_func([x, w, bias, relu], name="dense")

if __name__ == "__main__":
    target = anyfn.Target("c", cc="arm-none-eabi-gcc", mcpu="cortex-m4", options=OPTIONS)
    anyfn.build(dense, target).export(sys.argv[1])
