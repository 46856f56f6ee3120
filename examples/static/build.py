"""Compiles a matrix product, makes it a static executable with `main.c`, runs it, and lists its parts: `build.py [FOLDER]`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

import anyfn
from anyfn import te

M, K, N = 64, 32, 48
HERE = Path(__file__).resolve().parent
# Parts of the program, by the file from which the linker took a section.
PARTS = {
    "libanyfn_static.a": "runtime (the core)",
    "module-": "compiled function",
    "main-": "main.c",
    "start.o": "start-up code",
    "format.o": "start-up code",
    "libgcc.a": "start-up code",
}


def matmul():
    """Returns a module with the function `matmul`."""
    a, b = te.placeholder((M, K), name="a"), te.placeholder((K, N), name="b")
    k = te.reduce_axis((0, K), name="k")
    product = te.compute((M, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    return anyfn.build([a, b, product], name="matmul")


def sizes(map_file, program):
    """Returns the number of bytes of each part of a program, from the map that the linker has written."""
    found = dict.fromkeys(PARTS.values(), 0)
    text = map_file.read_text(encoding="utf-8").partition("Linker script and memory map")[2]
    sections = re.findall(r"^ (\.[\w.$]+)\s+0x([0-9a-f]+)\s+0x([0-9a-f]+) (\S+)$", text, re.MULTILINE)
    for section, address, size, file in sections:
        # Variables that begin as zeros, and what is not loaded, take no room in the file.
        if section.startswith((".bss", ".tbss", ".comment", ".debug", ".symtab", ".strtab")) or int(address, 16) == 0:
            continue
        for name, part in PARTS.items():
            if name in file:
                found[part] += int(size, 16)
    return {**found, "headers and alignment": os.path.getsize(program) - sum(found.values())}


def main():
    """Builds the program, compares its result with that of NumPy, and prints a table."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    program, map_file = folder / "matmul", folder / "matmul.map"
    matmul().export(program, [HERE / "main.c"], runtime="static", link_options=[f"-Wl,-Map={map_file}"])
    a, b = (np.random.default_rng(0).standard_normal(shape, "float32") for shape in ((M, K), (K, N)))
    done = subprocess.run([program.resolve()], input=a.tobytes() + b.tobytes(), stdout=subprocess.PIPE, check=True)
    np.testing.assert_allclose(np.frombuffer(done.stdout, "float32").reshape(M, N), a @ b, 1e-4, 1e-4)
    print("the product is equal to that of NumPy")
    for part, size in [*sizes(map_file, program).items(), ("the whole program", os.path.getsize(program))]:
        print(f"{size:7,} bytes  {part}")


if __name__ == "__main__":
    main()
