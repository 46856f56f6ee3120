"""Defines a module kind in Python. A module's content has lines ``NAME A B``, each of which defines a function x -> A * x + B.

    python calc.py make LIB OBJECT...   writes the bundle LIB from object files or a library, and kernels.calc
    python calc.py LIB                  loads the bundle and calls its functions
"""

import sys
from pathlib import Path

import anyfn


class Calc:
    kind = "calc"

    def __init__(self, code):
        self.code = code
        self.kernels = {name: (int(a), int(b)) for name, a, b in map(str.split, code.decode().splitlines())}

    def get_function(self, name):
        if name not in self.kernels:
            return None
        a, b = self.kernels[name]
        return lambda x: a * x + b

    def functions(self):
        return list(self.kernels)

    def save_to_bytes(self):
        return self.code

    def inspect_source(self, fmt):
        return self.code.decode()


anyfn.register_module_loader("calc", Calc, extensions=["calc"])


def make(library, objects):
    anyfn.bundle(library, objects, anyfn.load_module(Path(__file__).parent / "kernels.calc"))


def run(library):
    module = anyfn.load_module(library)
    print(f"half={module.half(20)}")
    print(f"sum_scaled={module.sum_scaled(10)}")
    (calc,) = module.imports
    print(f"shift={calc.shift(5)}")


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3:])
    else:
        run(sys.argv[1])
