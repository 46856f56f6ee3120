"""Sample functions and types for tests: importing this module loads them into the process."""

import os

from . import _core
from ._module import load_module
from ._registry import _init_api

_LIBRARY = os.environ.get("ANYFN_TESTING_LIB") or os.path.join(
    os.path.dirname(_core.LIBRARY), "libanyfn_testing.so"
)

if not os.path.exists(_LIBRARY):
    raise ImportError(f"the library of sample functions is not installed: {_LIBRARY} (ANYFN_TESTING_LIB names another)")

# The functions are registered as long as the module is held.
_module = load_module(_LIBRARY)
_init_api("testing", __name__)
