"""Sample functions and types for tests; importing this module loads and registers them."""

import os

from . import _core
from ._module import load_module
from ._registry import _init_api
from ._values import device as _device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._core import PackedFunc
    from ._values import device

    # The functions that `_init_api` adds.
    def __getattr__(name: str) -> PackedFunc: ...

_LIBRARY = os.environ.get("ANYFN_TESTING_LIB") or os.path.join(
    os.path.dirname(_core.LIBRARY), "libanyfn_testing.so"
)

if not os.path.exists(_LIBRARY):
    raise ImportError(
        f"anyfn.testing needs the library of sample functions, which is not at {_LIBRARY}: wheels do not contain it. "
        "`./x build` creates it in the source tree; the environment variable ANYFN_TESTING_LIB specifies its path"
    )

# The functions stay registered while this reference to the module exists.
_module = load_module(_LIBRARY)
_init_api("testing", __name__)


def live_objects() -> "dict[str, int]":
    """Returns the number of live native objects by type key.

    It covers the objects that this package, its runtime and the sample library have created; ``DLTensor*`` represents the
    memory of tensors. The numbers are exact while no other thread creates or frees objects. Release builds do not
    distinguish types and have a single entry, ``<all types>``.
    """
    counts = _core.live_objects()
    for function in (_of_runtime, _of_library):
        for key, count in function().items():
            counts[key] = counts.get(key, 0) + count
    return {key: counts[key] for key in sorted(counts) if counts[key]}


def null_device(index: int = 0) -> "device":
    """Returns a null device, a test device that only stores bytes. The host cannot access the bytes directly, as on a GPU."""
    return _device(_core.get_global_func("anyfn.device_enable_null", False)().type, index)


_of_runtime = _core.get_global_func("anyfn.live_objects", False)
_of_library = _core.get_global_func("testing.live_objects_by_type", False)
