"""A frontend in the style of TVM 0.8's: Python over the classic C API, through ctypes alone.

It uses nothing of the package but the file of its library. ``test_classic.py`` tests it, and runs the conformance corpus
through it.
"""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint32, c_void_p

import numpy as np

INT, UINT, FLOAT, OPAQUE, NULL, DTYPE, DEVICE, DLTENSOR, OBJECT, MODULE, FUNCTION, STR, BYTES, NDARRAY, RVALUE = range(15)


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", c_int), ("device_id", c_int)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int),
        ("dtype", DLDataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class ByteArray(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("size", c_size_t)]


class Value(ctypes.Union):
    _fields_ = [
        ("v_int64", c_int64),
        ("v_float64", c_double),
        ("v_handle", c_void_p),
        ("v_str", c_char_p),
        ("v_type", DLDataType),
        ("v_device", DLDevice),
    ]


CFUNC = ctypes.CFUNCTYPE(c_int, POINTER(Value), POINTER(c_int), c_int, c_void_p, c_void_p)
FINALIZER = ctypes.CFUNCTYPE(None, c_void_p)


class ClassicError(Exception):
    """An error of the runtime, with the kind and the message that its text states."""

    def __init__(self, text):
        self.text = text
        head = text.split("\nStack trace:\n", 1)[0]
        self.kind, _, self.message = head.partition(": ")
        super().__init__(head)


class Runtime:
    """The runtime in a library."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(str(path))
        self.lib.TVMGetLastError.restype = c_char_p
        self.lib.TVMDLManagedTensorCallDeleter.restype = None
        self.lib.TVMAPISetLastError.restype = None
        self.callbacks = {}
        # Called by the runtime when a function that was made of a callback is destroyed.
        self.finalizer = FINALIZER(lambda key: self.callbacks.pop(key))

    def check(self, code):
        if code != 0:
            raise ClassicError(self.lib.TVMGetLastError().decode())

    # Global functions

    def get_global_func(self, name, allow_missing=False):
        out = c_void_p()
        self.check(self.lib.TVMFuncGetGlobal(name.encode(), byref(out)))
        if out.value is None:
            if allow_missing:
                return None
            raise ValueError(f"Cannot find global function {name}")
        return Function(self, out.value)

    def register_func(self, name, f, override=False):
        function = f if isinstance(f, Function) else self.convert(f)
        self.check(self.lib.TVMFuncRegisterGlobal(name.encode(), c_void_p(function.handle), int(override)))
        return f

    def remove_global_func(self, name):
        self.check(self.lib.TVMFuncRemoveGlobal(name.encode()))

    def list_global_func_names(self):
        size, names = c_int(), POINTER(c_char_p)()
        self.check(self.lib.TVMFuncListGlobalNames(byref(size), byref(names)))
        return [names[i].decode() for i in range(size.value)]

    # Callbacks

    def convert(self, f):
        """Makes a function of a Python callable."""

        def call(args, codes, count, ret, _resource):
            try:
                result = f(*(self.argument(args[i], codes[i]) for i in range(count)))
                values, result_codes, _alive = self.arguments((result,))
                return self.lib.TVMCFuncSetReturn(c_void_p(ret), values, result_codes, 1)
            except ClassicError as error:
                self.lib.TVMAPISetLastError(error.text.encode())
            except Exception as error:
                self.lib.TVMAPISetLastError(f"{type(error).__name__}: {error}".encode())
            return -1

        out, callback = c_void_p(), CFUNC(call)
        key = ctypes.cast(callback, c_void_p).value
        self.callbacks[key] = callback
        self.check(self.lib.TVMFuncCreateFromCFunc(callback, c_void_p(key), self.finalizer, byref(out)))
        return Function(self, out.value)

    def argument(self, value, code):
        """Returns an argument of a callback. A handle is retained."""
        if code in (OBJECT, MODULE, FUNCTION, NDARRAY, RVALUE):
            owned, owned_code = Value.from_buffer_copy(value), c_int(code)
            self.check(self.lib.TVMCbArgToReturn(byref(owned), byref(owned_code)))
            return self.result(owned, owned_code.value)
        if code == DLTENSOR:
            return NDArray(self, value.v_handle, is_view=True)
        return self.result(value, code)

    # Values

    def arguments(self, args):
        values, codes, alive = (Value * len(args))(), (c_int * len(args))(), []
        for i, arg in enumerate(args):
            if arg is None:
                codes[i] = NULL
            elif isinstance(arg, (bool, int)):
                values[i].v_int64, codes[i] = arg, INT
            elif isinstance(arg, float):
                values[i].v_float64, codes[i] = arg, FLOAT
            elif isinstance(arg, str):
                text = arg.encode()
                alive.append(text)
                values[i].v_str, codes[i] = text, STR
            elif isinstance(arg, (bytes, bytearray)):
                data = bytes(arg)
                array = ByteArray(ctypes.cast(data, c_void_p), len(data))
                alive += [data, array]
                values[i].v_handle, codes[i] = ctypes.addressof(array), BYTES
            elif isinstance(arg, DLDevice):
                values[i].v_device, codes[i] = arg, DEVICE
            elif isinstance(arg, DLDataType):
                values[i].v_type, codes[i] = arg, DTYPE
            elif isinstance(arg, c_void_p):
                values[i].v_handle, codes[i] = arg, OPAQUE
            elif isinstance(arg, Handle):
                alive.append(arg)
                values[i].v_handle, codes[i] = arg.handle, arg.code
            elif isinstance(arg, (list, tuple, dict)):
                arg = self.container(arg)
                alive.append(arg)
                values[i].v_handle, codes[i] = arg.handle, arg.code
            elif callable(arg):
                arg = self.convert(arg)
                alive.append(arg)
                values[i].v_handle, codes[i] = arg.handle, arg.code
            else:
                raise TypeError(f"no type code for {type(arg).__name__}")
        return values, codes, alive

    def container(self, value):
        if isinstance(value, dict):
            return self.get_global_func("runtime.Map")(*(item for pair in value.items() for item in pair))
        return self.get_global_func("runtime.Array")(*value)

    def result(self, value, code):
        if code == NULL:
            return None
        if code == INT:
            return value.v_int64
        if code == FLOAT:
            return value.v_float64
        if code == STR:
            return value.v_str.decode()
        if code == BYTES:
            array = ByteArray.from_address(value.v_handle)
            return ctypes.string_at(array.data, array.size)
        if code == OPAQUE:
            return c_void_p(value.v_handle)
        if code == DEVICE:
            return DLDevice.from_buffer_copy(value.v_device)
        if code == DTYPE:
            return DLDataType.from_buffer_copy(value.v_type)
        return {OBJECT: Object, MODULE: Module, FUNCTION: Function, NDARRAY: NDArray}[code](self, value.v_handle)

    # Modules and arrays

    def load_module(self, path, fmt=""):
        out = c_void_p()
        self.check(self.lib.TVMModLoadFromFile(str(path).encode(), fmt.encode(), byref(out)))
        return Module(self, out.value)

    def empty(self, shape, dtype="float32", device=(1, 0)):
        kind = np.dtype(dtype)
        code = {"i": 0, "u": 1, "f": 2, "b": 1}[kind.kind]
        bits = 1 if kind.kind == "b" else kind.itemsize * 8
        out, extents = c_void_p(), (c_int64 * len(shape))(*shape)
        self.check(self.lib.TVMArrayAlloc(extents, len(shape), code, bits, 1, *device, byref(out)))
        return NDArray(self, out.value)

    def array(self, data):
        data = np.asarray(data, order="C")
        array = self.empty(data.shape, data.dtype)
        self.check(self.lib.TVMArrayCopyFromBytes(c_void_p(array.handle), c_void_p(data.ctypes.data), c_size_t(data.nbytes)))
        return array


class Handle:
    """A handle, which is released with the Python object."""

    code, free = OBJECT, "TVMObjectFree"

    def __init__(self, runtime, handle, is_view=False):
        self.runtime, self.handle, self.is_view = runtime, handle, is_view

    def __del__(self):
        if not self.is_view:
            getattr(self.runtime.lib, self.free)(c_void_p(self.handle))


class Object(Handle):
    def type_key(self):
        index, key = c_uint32(), c_void_p()
        self.runtime.check(self.runtime.lib.TVMObjectGetTypeIndex(c_void_p(self.handle), byref(index)))
        self.runtime.check(self.runtime.lib.TVMObjectTypeIndex2Key(index, byref(key)))
        text = ctypes.string_at(key.value).decode()
        libc = ctypes.CDLL(None)
        libc.free(key)
        return text


class Function(Handle):
    code, free = FUNCTION, "TVMFuncFree"

    def __call__(self, *args):
        values, codes, _alive = self.runtime.arguments(args)
        value, code = Value(), c_int()
        lib = self.runtime.lib
        self.runtime.check(lib.TVMFuncCall(c_void_p(self.handle), values, codes, len(args), byref(value), byref(code)))
        return self.runtime.result(value, code.value)


class Module(Handle):
    code, free = MODULE, "TVMModFree"

    def get_function(self, name, query_imports=False):
        out, lib = c_void_p(), self.runtime.lib
        self.runtime.check(lib.TVMModGetFunction(c_void_p(self.handle), name.encode(), int(query_imports), byref(out)))
        if out.value is None:
            raise AttributeError(f"Module has no function '{name}'")
        return Function(self.runtime, out.value)

    __getitem__ = get_function

    def import_module(self, other):
        self.runtime.check(self.runtime.lib.TVMModImport(c_void_p(self.handle), c_void_p(other.handle)))

    @property
    def imports(self):
        listed = self.runtime.get_global_func("ffi.ModuleGetImports")(self)
        item, size = (self.runtime.get_global_func(f"runtime.Array{name}") for name in ("GetItem", "Size"))
        return [item(listed, i) for i in range(size(listed))]


class NDArray(Handle):
    code, free = NDARRAY, "TVMArrayFree"

    def __init__(self, runtime, handle, is_view=False):
        super().__init__(runtime, handle, is_view)
        if is_view:
            self.code = DLTENSOR
        self.tensor = DLTensor.from_address(handle)

    @property
    def shape(self):
        return tuple(self.tensor.shape[i] for i in range(self.tensor.ndim))

    @property
    def dtype(self):
        name = {0: "int", 1: "uint", 2: "float"}[self.tensor.dtype.code] + str(self.tensor.dtype.bits)
        return "bool" if name == "uint1" else name

    def numpy(self):
        out = np.empty(self.shape, self.dtype)
        if self.is_view:
            start = self.tensor.data + self.tensor.byte_offset
            ctypes.memmove(out.ctypes.data, start, out.nbytes)
            return out
        copy = self.runtime.lib.TVMArrayCopyToBytes
        self.runtime.check(copy(c_void_p(self.handle), c_void_p(out.ctypes.data), c_size_t(out.nbytes)))
        return out

    def copyto(self, other):
        copy = self.runtime.lib.TVMArrayCopyFromTo
        self.runtime.check(copy(c_void_p(self.handle), c_void_p(other.handle), None))
