//! The module `anyfn._core`: its initialisation and its functions.

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::ptr;

use anyfn::__private::{nearest, shorten};
use anyfn::abi::{TVMFFIByteArray, TVMFFIDataTypeFromString, TVMFFIFunctionSetGlobal};
use anyfn::reflection::TypeInfo;
use anyfn::{DType, Module, ObjectRef, PackedFunc, Shape, registry};
use pyo3_ffi as ffi;

use crate::at::At;
use crate::owned::lower_owned;
use crate::py::{self, IntError, Obj, Own, PyObject, Raised, Res};
use crate::{
    arrays, call_token, callback, cancel, classes, containers, convert, define, dlpack, error, fields,
    function, gil, global_func, greenlets, kept, lift, method, module_class, object, object_class, observe,
    packed, place, plan, python_function, reflect, rewrite, runtime_hooks, signature, tensor, tensor_class,
    trace, words,
};

/// Entry point that CPython calls to load the module.
///
/// # Safety
/// Must be called by CPython with the GIL held.
#[expect(unreachable_pub, reason = "found by its name, not by its path")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PyInit__core() -> *mut PyObject {
    let methods = FUNCTIONS
        .iter()
        .map(|(name, function, doc)| ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunction: as_method(*function) },
            ml_flags: METH_FASTCALL,
            ml_doc: doc.as_ptr(),
        })
        .chain([ffi::PyMethodDef::zeroed()])
        .collect::<Vec<_>>()
        .leak();
    let slots = vec![
        ffi::PyModuleDef_Slot { slot: ffi::Py_mod_exec, value: exec as *mut c_void },
        ffi::PyModuleDef_Slot::default(),
    ]
    .leak();
    // The definition lives as long as the process, like the module.
    let definition = Box::leak(Box::new(ffi::PyModuleDef {
        m_base: ffi::PyModuleDef_HEAD_INIT,
        m_name: c"anyfn._core".as_ptr(),
        m_doc: c"Native part of anyfn.".as_ptr(),
        m_size: 0,
        m_methods: methods.as_mut_ptr(),
        m_slots: slots.as_mut_ptr(),
        m_traverse: None,
        m_clear: None,
        m_free: None,
    }));
    // SAFETY: the definition is valid and never freed.
    unsafe { ffi::PyModuleDef_Init(definition) }
}

/// Initialises the contents of the module `anyfn._core`.
unsafe extern "C" fn exec(module: *mut PyObject) -> c_int {
    // SAFETY: CPython passes the new module and holds the GIL.
    let module: Obj<'_> = unsafe { Obj::from_ptr(module) };
    match catch_unwind(AssertUnwindSafe(|| start(module))) {
        Ok(Ok(())) => 0,
        Ok(Err(Raised)) => -1,
        Err(payload) => {
            error::raise_panic(&*payload);
            -1
        }
    }
}

fn start(module: Obj<'_>) -> Res<()> {
    let import_error = |message: &str| py::raise(py::exceptions::import_error(), message);
    // SAFETY: the GIL is held, so an interpreter exists.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: this is the interpreter of this thread, which is not ending.
    if unsafe { ffi::PyInterpreterState_GetID(interpreter) } != 0 {
        return import_error(
            "anyfn does not support sub-interpreters: it can be imported in the main interpreter only",
        );
    }
    if !gil::watch_end() {
        return import_error(
            "anyfn cannot be imported by a second interpreter of a process: native code holds objects of the first one, which has \
             ended",
        );
    }
    let library = library()?;
    if let Err(error) = anyfn_attach::attach(&library) {
        return import_error(&error.to_string());
    }
    // The extension has its own copy of the standard library, so the hook sees only its panics.
    anyfn::record_panic_locations();
    if let Err(name) = py::raw::init() {
        return import_error(&format!(
            "anyfn requires the C function {name}, which this Python does not provide"
        ));
    }
    py::builtins::init()?;
    py::names::init()?;
    // The functions of higher layers that objects of lower layers contain.
    python_function::init(callback::safe_call);
    packed::init(&function::ENTRIES);
    object_class::init()?;
    classes::init(fields::make_class)?;
    function::init()?;
    module_class::init()?;
    words::init()?;
    error::init()?;
    call_token::init()?;
    plan::init()?;
    method::init()?;
    containers::init()?;
    runtime_hooks::register();
    greenlets::register_hooks();
    place::init();
    observe::init();
    for (name, class) in [
        (c"Object", &object::CLASS),
        (c"BuiltinObject", &object::BUILTIN),
        (c"PackedFunc", &packed::CLASS),
        (c"Module", &module_class::CLASS),
        (c"Word", &words::CLASS),
        (c"CallToken", &call_token::CLASS),
        (c"Constructor", &plan::CLASS),
    ] {
        let name = py::intern(name)?;
        module.set_attr(name.obj(), class.get())?;
    }
    for (name, class) in containers::classes() {
        let name = py::intern(name)?;
        module.set_attr(name.obj(), class.get())?;
    }
    let name = py::intern(c"get_global_func")?;
    module.set_attr(name.obj(), global_func::make()?.obj())?;
    let path = py::string_lossy(library.as_os_str().as_encoded_bytes())?;
    let name = py::intern(c"LIBRARY")?;
    module.set_attr(name.obj(), path.obj())?;
    let version = py::string(env!("CARGO_PKG_VERSION").as_bytes())?;
    let name = py::intern(c"VERSION")?;
    module.set_attr(name.obj(), version.obj())
}

/// Returns the path of the runtime packaged with this extension: `lib/libanyfn.so` next to it.
fn library() -> Res<PathBuf> {
    let own = anyfn_attach::own_file().and_then(|file| file.canonicalize().ok());
    match own.as_deref().and_then(|file| file.parent()) {
        Some(folder) => Ok(folder.join("lib").join("libanyfn.so")),
        None => py::raise(py::exceptions::import_error(), "cannot determine the file of the anyfn extension"),
    }
}

/// Method flag for functions that take their arguments as an array. The flag has been part of the stable ABI
/// since Python 3.10, and its value has not changed since 3.7.
const METH_FASTCALL: c_int = 0x80;

type Function = unsafe extern "C" fn(*mut PyObject, *const *mut PyObject, ffi::Py_ssize_t) -> *mut PyObject;

/// Converts a function to the type that the method table requires. The flags in the table declare the function's
/// actual type to CPython.
fn as_method(function: Function) -> ffi::PyCFunction {
    // SAFETY: this only changes the type; CPython calls the function with the signature that `METH_FASTCALL` declares.
    unsafe { std::mem::transmute::<Function, ffi::PyCFunction>(function) }
}

/// Runs `body`, which implements a function of the module `anyfn._core`. Checks the number of arguments
/// first, and converts a panic into an exception.
///
/// # Safety
/// Must be called by CPython with `count` valid objects at `args`.
unsafe fn enter<const N: usize>(
    args: *const *mut PyObject,
    count: ffi::Py_ssize_t,
    body: fn([Obj<'_>; N]) -> Res<Own>,
) -> *mut PyObject {
    let args: &[Obj<'_>] = if count == 0 {
        &[]
    } else {
        // SAFETY: guaranteed by the caller; `Obj` is transparent over the pointer.
        unsafe { std::slice::from_raw_parts(args.cast(), count as usize) }
    };
    let Ok(args) = <[Obj<'_>; N]>::try_from(args) else {
        let _ =
            py::raise::<()>(py::exceptions::type_error(), &format!("expected {N} arguments but got {count}"));
        return ptr::null_mut();
    };
    if anyfn::has_ledger() {
        return place::noted(|| error::catch(|| body(args)));
    }
    error::catch(|| body(args))
}

macro_rules! functions {
    ($( $(#[doc = $doc:literal])* fn $name:ident[$($arg:ident),*] $body:block )*) => {
        $( $(#[doc = $doc])* fn $name([$($arg),*]: [Obj<'_>; functions!(@count $($arg)*)]) -> Res<Own> $body )*

        /// Name, C function and documentation of each function of the module `anyfn._core`.
        const FUNCTIONS: &[(&CStr, Function, &CStr)] = &[$( {
            unsafe extern "C" fn call(
                _module: *mut PyObject,
                args: *const *mut PyObject,
                count: ffi::Py_ssize_t,
            ) -> *mut PyObject {
                // SAFETY: CPython passes `count` valid objects.
                unsafe { enter(args, count, $name) }
            }
            const NAME: &str = concat!(stringify!($name), "\0");
            const DOC: &str = concat!($($doc,)* "\0");
            (c_str(NAME), call, c_str(DOC))
        } ),*];
    };
    (@count $($arg:ident)*) => { <[&str]>::len(&[$(stringify!($arg)),*]) };
}

const fn c_str(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

fn native<T>(result: anyfn::Result<T>) -> Res<T> {
    result.map_err(error::raise)
}

fn text(object: Obj<'_>) -> Res<String> {
    py::str_argument(object).map(str::to_owned)
}

fn int(object: Obj<'_>) -> Res<i64> {
    object.int().or_else(|error| match error {
        IntError::Raised => Err(Raised),
        IntError::Overflow => py::raise(py::exceptions::overflow_error(), "expected an int of 64 bits"),
    })
}

fn function(object: Obj<'_>) -> Res<PackedFunc> {
    match packed::handle_as_packed(object) {
        Some(function) => Ok(function),
        None => py::raise(
            py::exceptions::type_error(),
            &format!("expected a PackedFunc but got {}", object.class_name()),
        ),
    }
}

functions! {
    #[doc = "start_ledger(): starts recording who creates each live object"]
    fn start_ledger[] {
        native(place::start())?;
        Ok(py::none())
    }

    #[doc = "set_global_func(name, func, override): registers a global function"]
    fn set_global_func[name, func, overrides] {
        let key = text(name)?;
        let native = function(func)?;
        let bytes = TVMFFIByteArray::from_slice(key.as_bytes());
        let handle = native.as_object().as_handle();
        // SAFETY: the name and the function are borrowed for the call.
        let code = unsafe { TVMFFIFunctionSetGlobal(&bytes, handle, overrides.is_true()?.into()) };
        if code != 0 {
            return Err(error::raise_from_native(code));
        }
        packed::set_key(func, name);
        Ok(py::none())
    }

    #[doc = "list_global_func_names() -> list: names of all global functions"]
    fn list_global_func_names[] {
        let names = native(registry::list())?;
        py::list(names.iter().map(|name| py::string(name.as_bytes())).collect::<Res<Vec<Own>>>()?)
    }

    #[doc = "remove_global_func(name) -> bool: removes a global function; False if it does not exist"]
    fn remove_global_func[name] {
        let name = text(name)?;
        native(registry::remove(&name)).map(py::boolean)
    }

    #[doc = "convert(value): converts a value to a native value and back to Python"]
    fn convert[value] {
        lift::lift_owned(lower_owned(value, &At::Value)?)
    }

    #[doc = "to_python(value): converts native containers to Python containers, recursively"]
    fn to_python[value] {
        containers::to_python(value)
    }

    #[doc = "from_dlpack(array) -> Tensor: a tensor that shares the memory of an array"]
    fn from_dlpack[array] {
        lift::lift_object(arrays::from_any(array, &At::Value)?.into_object())
    }

    #[doc = "const_tensor(array) -> Tensor: a read-only tensor of the memory of an array, for functions that only read it"]
    fn const_tensor[array] {
        lift::lift_object(kept::make_const(arrays::from_any(array, &At::Const)?)?.into_object())
    }

    #[doc = "tensor_with_dtype(tensor, bits) -> Tensor: a tensor of the same memory with another data type of the same size"]
    fn tensor_with_dtype[tensor, bits] {
        tensor::with_dtype(tensor, int(bits)?)
    }

    #[doc = "exchange_api() -> capsule: the DLPack table of C functions through which other libraries access a Tensor"]
    fn exchange_api[] {
        dlpack::own_exchange()
    }

    #[doc = "module_function(module, name, query_imports) -> PackedFunc or None: a function of a module"]
    fn module_function[module, name, query_imports] {
        let key = text(name)?;
        let Some(object) = object::reference_of(module) else {
            return py::raise(py::exceptions::type_error(), "expected a Module");
        };
        let Ok(module) = Module::try_from_object(object) else {
            return py::raise(py::exceptions::type_error(), "expected a Module");
        };
        let found = if query_imports.is_true()? {
            module.find_function_with_imports(&key)
        } else {
            module.find_function(&key)
        };
        match native(found)? {
            // Compiled code may run for long, so other threads continue meanwhile.
            Some(found) => packed::wrap(found.into_object(), Some(name), true),
            None => Ok(py::none()),
        }
    }

    #[doc = "module_forget(module): releases the functions that were found in the module and are not in use elsewhere"]
    fn module_forget[module] {
        if !module.is_instance_of(module_class::CLASS.ptr()) {
            return py::raise(py::exceptions::type_error(), "expected a Module");
        }
        module_class::forget(module);
        Ok(py::none())
    }

    #[doc = "function_key(function) -> str or None: the global name under which a function was found or registered"]
    fn function_key[func] {
        function(func)?;
        Ok(packed::key(func).map_or_else(py::none, Obj::to_own))
    }

    #[doc = "function_signature(function) -> tuple or None: (params, variadic, result, doc, named) of a signature"]
    fn function_signature[func] {
        function(func)?;
        signature::known(func)?.describe()
    }

    #[doc = "shown_signature(function) -> Signature or None: the value that show_signature has stored"]
    fn shown_signature[func] {
        function(func)?;
        match signature::known(func) {
            Ok(known) => Ok(known.shown().unwrap_or_else(py::none)),
            Err(Raised) => {
                py::clear_error();
                Ok(py::none())
            }
        }
    }

    #[doc = "show_signature(function, signature): stores the inspect.Signature of a function until a class is registered"]
    fn show_signature[func, shown] {
        function(func)?;
        signature::known(func)?.show(shown);
        Ok(py::none())
    }

    #[doc = "python_callable(function): the Python object that a function calls, or None"]
    fn python_callable[func] {
        let native = function(func)?;
        let callable = python_function::python_callable(native.as_object().as_handle().cast());
        Ok(callable.map_or_else(py::none, Obj::to_own))
    }

    #[doc = "set_describe(describe, attribute): sets the functions behind signatures and attributes of functions"]
    fn set_describe[describe, attribute] {
        python_function::DESCRIBE.set(describe.to_own());
        signature::ATTRIBUTE.set(attribute.to_own());
        Ok(py::none())
    }

    #[doc = "module_missing(module, name): raises the error for a function that a module does not have"]
    fn module_missing[module, name] {
        let name = text(name)?;
        match object::reference_of(module).map(Module::try_from_object) {
            Some(Ok(module)) => Err(error::raise(module.missing(&name))),
            _ => py::raise(py::exceptions::type_error(), "expected a Module"),
        }
    }

    #[doc = "unknown_name(what, name, known) -> str: the message for an unknown name, with the nearest known name or all of them"]
    fn unknown_name[what, name, known] {
        let (what, name) = (text(what)?, text(name)?);
        if known.type_flags() & ffi::Py_TPFLAGS_LIST_SUBCLASS == 0 {
            return py::raise(py::exceptions::type_error(), "expected a list of names");
        }
        let mut names = Vec::new();
        while let Some(known) = py::list_get(known, names.len()) {
            names.push(text(known.obj())?);
        }
        let near = nearest(&name, names.iter().map(String::as_str));
        let hint = near.map_or_else(|| format!("known are {}", names.join(", ")), |near| format!("did you mean '{near}'?"));
        py::string(format!("unknown {what} '{}'; {hint}", shorten(&name)).as_bytes())
    }

    #[doc = "tensor_info(tensor) -> (shape, strides, dtype, device, address, read_only)"]
    fn tensor_info[tensor] {
        tensor::describe(tensor)
    }

    #[doc = "tensor_shape(tensor) -> tuple: extents of a tensor"]
    fn tensor_shape[tensor] {
        tensor::shape(tensor)
    }

    #[doc = "tensor_device(tensor) -> (device_type, index)"]
    fn tensor_device[tensor] {
        tensor::dlpack_device(tensor)
    }

    #[doc = "shape_values(shape) -> tuple: extents in a Shape"]
    fn shape_values[shape] {
        match object::reference_of(shape).and_then(|object| Shape::try_from_object(object).ok()) {
            Some(shape) => py::tuple(shape.iter().map(|extent| py::int(*extent)).collect::<Res<Vec<Own>>>()?),
            None => py::raise(py::exceptions::type_error(), "expected a Shape"),
        }
    }

    #[doc = "tensor_capsule(tensor, versioned, copied): a DLPack capsule; `copied` marks the memory as an unshared copy"]
    fn tensor_capsule[tensor, versioned, copied] {
        dlpack::to_capsule(tensor, versioned.is_true()?, copied.is_true()?)
    }

    #[doc = "error_texts(error) -> (kind, message, backtrace)"]
    fn error_texts[error] {
        error::texts(error)
    }

    #[doc = "error_objects(error) -> (cause, context)"]
    fn error_objects[error] {
        let wrap = |object: Option<ObjectRef>| object.map_or_else(|| Ok(py::none()), lift::lift_object);
        let [cause, context] = error::objects(error)?;
        py::tuple(vec![wrap(cause)?, wrap(context)?])
    }

    #[doc = "use_count(object) -> int: current number of references to the native object"]
    fn use_count[object] {
        match object::reference_of(object) {
            // The result excludes the reference that was taken for the query.
            Some(object) => py::int(object.use_count() as i64 - 1),
            None => py::raise(py::exceptions::type_error(), "expected an Object"),
        }
    }

    #[doc = "live_objects() -> dict: number of live objects that this extension has created, by type"]
    fn live_objects[] {
        let counts = py::dict()?;
        for (key, count) in anyfn::live_objects_by_type() {
            py::dict_set(counts.obj(), py::string(key.as_bytes())?.obj(), py::int(count as i64)?.obj())?;
        }
        Ok(counts)
    }

    #[doc = "address(object) -> int: address of the native object"]
    fn address[object] {
        match object::handle_of(object).filter(|handle| !handle.is_null()) {
            Some(handle) => py::int(handle.addr() as i64),
            None => py::raise(py::exceptions::type_error(), "expected an Object"),
        }
    }

    #[doc = "type_index(key) -> int or None: type index of a type key"]
    fn type_index[key] {
        match anyfn::type_index_of(&text(key)?) {
            Some(index) => py::int(index.into()),
            None => Ok(py::none()),
        }
    }

    #[doc = "add_fields(type_index, class): adds an attribute to a class for each field of a type"]
    fn add_fields[index, class] {
        if !class.is_subclass_of(object::CLASS.ptr()) {
            return py::raise(py::exceptions::type_error(), "expected a class derived from anyfn.Object");
        }
        fields::add_all(int(index)?, class)?;
        Ok(py::none())
    }

    #[doc = "type_attribute(name, type_index): value of a type attribute, or None"]
    fn type_attribute[name, index] {
        let name = text(name)?;
        let index = i32::try_from(int(index)?).unwrap_or(-1);
        match TypeInfo::from_index(index).and_then(|info| info.attribute(&name)) {
            Some(value) => lift::lift_owned(value),
            None => Ok(py::none()),
        }
    }

    #[doc = "registered_class(type_index): the class whose instances represent objects of a type"]
    fn registered_class[index] {
        classes::class_of_type(int(index)?)
    }

    #[doc = "register_class(type_index, class): sets the class whose instances represent objects of a type"]
    fn register_class[index, class] {
        if class.is(packed::CLASS.ptr()) {
            return py::raise(py::exceptions::type_error(), "PackedFunc can only represent functions");
        }
        classes::register(int(index)?, class)?;
        Ok(py::none())
    }

    #[doc = "rewrite_in_place(root, arguments): calls anyfn.rewrite, which changes a root without other references in place"]
    fn rewrite_in_place[root, arguments] {
        if arguments.type_flags() & ffi::Py_TPFLAGS_LIST_SUBCLASS == 0 {
            return py::raise(py::exceptions::type_error(), "expected a list");
        }
        rewrite::in_place(root, arguments)
    }

    #[doc = "type_of_class(class) -> (int, str) or None: index and key of the type of a class or its nearest registered base"]
    fn type_of_class[class] {
        define::type_of(class)
    }

    #[doc = "define(class, key, fields, frozen, doc, structural) -> Constructor: defines the native type of a class"]
    fn define[class, key, fields, frozen, doc, structural] {
        let (key, doc) = (text(key)?, text(doc)?);
        define::define(class, &key, fields, frozen.is_true()?, &doc, int(structural)?)
    }

    #[doc = "add_method(type_index, name, function, doc, static): registers a method of a type for all languages"]
    fn add_method[index, name, function, doc, is_static] {
        let index = i32::try_from(int(index)?).unwrap_or(-1);
        define::add_method(index, &text(name)?, function, &text(doc)?, is_static.is_true()?)?;
        Ok(py::none())
    }

    #[doc = "type_info(type_index) -> (key, index, parent, doc, structural, fields, methods) or None: description of a type"]
    fn type_info[index] {
        reflect::type_info(i32::try_from(int(index)?).unwrap_or(-1))
    }

    #[doc = "replace(object, changes): a copy of an object in which the fields in a dictionary have other values"]
    fn replace[object, changes] {
        reflect::replace(object, changes)
    }

    #[doc = "set_converter(class, function, native): sets the converter to native values (native=True) or to Python values"]
    fn set_converter[class, function, native] {
        if native.is_true()? {
            convert::set_to_native(class, function)?;
        } else {
            classes::set_from_native(class, function)?;
        }
        Ok(py::none())
    }

    #[doc = "add_attribute(type_index, name, value): registers a type attribute, such as `__ffi_repr__`; not `__anyfn_..`"]
    fn add_attribute[index, name, value] {
        define::add_attribute(i32::try_from(int(index)?).unwrap_or(-1), &text(name)?, value)?;
        Ok(py::none())
    }

    #[doc = "make_error(kind, message, backtrace, context) -> ErrorObject"]
    fn make_error[kind, message, backtrace, context] {
        let (kind, message, backtrace) = (text(kind)?, text(message)?, text(backtrace)?);
        error::make(kind.as_bytes(), message.as_bytes(), backtrace.as_bytes(), context)
    }

    #[doc = "error_class(kind): the exception class of an error kind"]
    fn error_class[kind] {
        error::class_of(py::string(text(kind)?.as_bytes())?.obj())
    }

    #[doc = "register_error_class(kind, class): sets the exception class of an error kind"]
    fn register_error_class[kind, class] {
        error::register_class(kind, class)?;
        Ok(py::none())
    }

    #[doc = "set_native_frame(function): sets the function that creates the frames of native functions in tracebacks"]
    fn set_native_frame[function] {
        trace::set_make_frame(function);
        Ok(py::none())
    }

    #[doc = "setup(dtype, device, tensor, class_of_kind, method_class): sets what the Python part of the package defines"]
    fn setup[dtype, device, tensor, class_of_kind, method_class] {
        let word = words::CLASS.ptr();
        let known = dtype.is_subclass_of(word) && device.is_subclass_of(word);
        // The package may be imported again after it was removed from `sys.modules`.
        let own = known
            && tensor.is_subclass_of(object::CLASS.ptr())
            && text(tensor.attr(py::string(b"__module__")?.obj())?.obj())? == "anyfn._tensor";
        if !own || !class_of_kind.is_callable() {
            return py::raise(py::exceptions::type_error(), "setup may only be called by the anyfn package");
        }
        words::DTYPE.set(dtype.to_own());
        words::DEVICE.set(device.to_own());
        tensor::CLASS.set(tensor.to_own());
        tensor_class::add_members(tensor)?;
        python_function::PLAIN[0].set(class_of_kind.class().to_own());
        python_function::PLAIN[1].set(method_class.to_own());
        error::set_class_of_kind(class_of_kind);
        classes::register(anyfn::abi::kTVMFFITensor.into(), tensor)?;
        Ok(py::none())
    }

    #[doc = "current_call(): the CallToken of the innermost call on this thread, or None"]
    fn current_call[] {
        Ok(cancel::current())
    }

    #[doc = "check_signals(): raises if the call on this thread was cancelled or timed out, or if a signal handler raises"]
    fn check_signals[] {
        cancel::check_from_python()
    }

    #[doc = "set_finish(function): sets the function that runs a coroutine to completion for a call"]
    fn set_finish[function] {
        cancel::set_finish(function);
        Ok(py::none())
    }

    #[doc = "set_complete_class(function): sets the function that completes a class created for a native type"]
    fn set_complete_class[function] {
        fields::set_complete_class(function);
        Ok(py::none())
    }

    #[doc = "make_word(class, bits): creates an instance of a class derived from Word"]
    fn make_word[class, bits] {
        if !class.is_subclass_of(words::CLASS.ptr()) {
            return py::raise(py::exceptions::type_error(), "expected a class derived from Word");
        }
        words::make(class, int(bits)? as u64)
    }

    #[doc = "word_bits(word) -> int: bits of a Word"]
    fn word_bits[word] {
        if !word.is_instance_of(words::CLASS.ptr()) {
            return py::raise(py::exceptions::type_error(), "expected a Word");
        }
        py::int(words::bits(word) as i64)
    }

    #[doc = "dtype_parse(text) -> int: bits of the data type with a name"]
    fn dtype_parse[name] {
        let name = text(name)?;
        let name = TVMFFIByteArray::from_slice(name.as_bytes());
        let mut dtype = anyfn::abi::DLDataType { code: 0, bits: 0, lanes: 0 };
        // SAFETY: the name is borrowed for the call, and `dtype` is writable.
        let code = unsafe { TVMFFIDataTypeFromString(&name, &mut dtype) };
        if code != 0 {
            return Err(error::raise_from_native(code));
        }
        py::int(tensor::dtype_bits(dtype) as i64)
    }

    #[doc = "dtype_text(bits) -> str: name of the data type with these bits"]
    fn dtype_text[bits] {
        let bits = int(bits)?;
        let dtype = DType::new(bits as u8, (bits >> 8) as u8, (bits >> 16) as u16);
        py::string(dtype.to_string().as_bytes())
    }
}
