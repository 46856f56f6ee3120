"""Sample functions and types for tests: importing this module loads them into the process."""

import os

from . import _core
from ._module import load_module
from ._registry import _init_api

_LIBRARY = os.environ.get("ANYFN_TESTING_LIB") or os.path.join(
    os.path.dirname(_core.LIBRARY), "libanyfn_testing.so"
)

if not os.path.exists(_LIBRARY):
    raise ImportError(
        f"anyfn.testing needs the library of sample functions, which is not at {_LIBRARY}: wheels do not hold it. "
        "`./x build` makes it in the source tree; the variable ANYFN_TESTING_LIB says where it is"
    )

# The functions are registered as long as the module is held.
_module = load_module(_LIBRARY)
_init_api("testing", __name__)


def live_objects():
    """Number of native objects by the key of their type, of all that this package, its runtime and the sample library
    have made and that are alive; ``DLTensor*`` stands for the memory of tensors.

    Exact while no other thread makes or frees objects. Release builds count no types: one entry, ``<all types>``.
    """
    counts = _core.live_objects()
    for function in (_of_runtime, _of_library):
        for key, count in function().items():
            counts[key] = counts.get(key, 0) + count
    return {key: counts[key] for key in sorted(counts) if counts[key]}


def null_device(index=0):
    """A device whose memory the processor cannot reach, as that of a GPU: a stand-in for tests. It only stores bytes."""
    from ._values import device

    return device(_core.get_global_func("anyfn.device_enable_null", False)().type, index)


_of_runtime = _core.get_global_func("anyfn.live_objects", False)
_of_library = _core.get_global_func("testing.live_objects_by_type", False)
