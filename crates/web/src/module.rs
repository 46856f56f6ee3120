//! Modules whose code is a second WebAssembly module, which uses the memory, the table and the stack of this one. The package
//! instantiates the code (`web/modules.js`) and passes the positions of its functions in the table. The kernels for WebGPU devices that such
//! code launches are functions of JavaScript, in a module of their own that the code imports.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::{mem, ptr};
use std::sync::{Mutex, PoisonError};

use anyfn::abi::{
    AnyfnFunctionExt, OBJECT_FLAG_FUNCTION_EXT, TVMFFIAny, TVMFFIFunctionCell, TVMFFIObject,
    TVMFFIObjectHandle, TVMFFISafeCallType, kTVMFFIFunction, kTVMFFIModule,
    kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG, kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
};
use anyfn::{Any, Array, Module, ObjectRef, PackedFunc, Result, String, bail, register, registry};

/// Content of a module object.
struct Code {
    /// Kind of the module: `wasm` or `webgpu`.
    kind: &'static str,
    /// Functions, sorted by name.
    functions: Vec<Entry>,
    imports: Mutex<Vec<Module>>,
    /// Functions that the code has looked up, which it borrows.
    lookups: Mutex<Vec<PackedFunc>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the content of a module, which [`make`] has made. A type that derives from that of modules has another index.
fn code(module: &Module) -> Result<&Code> {
    let header: *const TVMFFIObject = module.as_object().as_handle().cast();
    if module.as_object().type_index() != kTVMFFIModule {
        bail!("TypeError", "expected a module of this runtime but got `{}`", module.as_object().type_key());
    }
    // SAFETY: the content lies behind the header of the object.
    let content: *const Code = unsafe { header.add(1) }.cast();
    // SAFETY: all objects of this type have this content. The reference keeps the object alive, and its locks guard what changes.
    Ok(unsafe { &*content })
}

/// A function of a module.
#[derive(Clone)]
struct Entry {
    name: String,
    body: EntryBody,
}

#[derive(Clone)]
enum EntryBody {
    /// Code in the table of the module.
    Compiled {
        /// Position of the function.
        position: usize,
        /// Position of the function that returns its metadata, or 0.
        metadata: usize,
    },
    /// Function that launches a kernel.
    Kernel(PackedFunc),
}

/// Makes a module of functions: their names, their positions in the table, and those of the functions that return their metadata, or 0.
#[register("anyfn.web.module")]
fn make(names: Array<String>, positions: Array<i64>, metadata: Array<i64>) -> Result<ObjectRef> {
    let mut functions = Vec::new();
    for (index, name) in names.to_vec()?.into_iter().enumerate() {
        let at = |list: &Array<i64>| list.get(index).map(|position| position as usize);
        let body = EntryBody::Compiled { position: at(&positions)?, metadata: at(&metadata)? };
        functions.push(Entry { name, body });
    }
    Ok(object("wasm", functions))
}

/// Makes a module of kernels for WebGPU devices: their names, and the functions that launch them.
#[register("anyfn.web.kernels")]
fn make_of_kernels(names: Array<String>, functions: Array<PackedFunc>) -> Result<ObjectRef> {
    let mut entries = Vec::new();
    for (index, name) in names.to_vec()?.into_iter().enumerate() {
        entries.push(Entry { name, body: EntryBody::Kernel(functions.get(index)?) });
    }
    Ok(object("webgpu", entries))
}

fn object(kind: &'static str, mut functions: Vec<Entry>) -> ObjectRef {
    functions.sort_by(|a, b| a.name.cmp(&b.name));
    let code = Code { kind, functions, imports: Mutex::new(Vec::new()), lookups: Mutex::new(Vec::new()) };
    // SAFETY: only this function makes objects of the type, so they all have this content, whose parts are locked.
    unsafe { anyfn::__private::new_object(kTVMFFIModule, code) }
}

/// The object of a function of a module. Calling it calls the code directly.
#[repr(C)]
struct CompiledFunction {
    header: TVMFFIObject,
    cell: TVMFFIFunctionCell,
    ext: &'static AnyfnFunctionExt,
    metadata: Option<TVMFFISafeCallType>,
    /// Module that the function keeps alive; taken when the content is dropped.
    module: Option<Module>,
}

static EXT: AnyfnFunctionExt =
    AnyfnFunctionExt { size: size_of::<AnyfnFunctionExt>(), flags: 0, signature: Some(signature) };

/// Returns the function at a position in the table.
///
/// # Safety
/// The package must have placed a function of this type there.
unsafe fn at(position: usize) -> TVMFFISafeCallType {
    // SAFETY: in WebAssembly, the address of a function is its position in the table.
    unsafe { mem::transmute::<usize, TVMFFISafeCallType>(position) }
}

/// Makes the object of a function. It keeps the module alive.
fn function(module: &Module, entry: &Entry) -> Result<PackedFunc> {
    let (position, metadata) = match &entry.body {
        EntryBody::Compiled { position, metadata } => (*position, *metadata),
        EntryBody::Kernel(function) => return Ok(function.clone()),
    };
    // SAFETY: the package has placed the functions of the module there.
    let safe_call = unsafe { at(position) };
    // SAFETY: the package has placed the functions of the module there.
    let metadata = (metadata != 0).then(|| unsafe { at(metadata) });
    let function = Box::into_raw(Box::new(CompiledFunction {
        header: TVMFFIObject {
            combined_ref_count: 0x1_0000_0001,
            type_index: kTVMFFIFunction,
            flags: if metadata.is_some() { OBJECT_FLAG_FUNCTION_EXT } else { 0 },
            deleter: Some(delete),
        },
        cell: TVMFFIFunctionCell { safe_call, cpp_call: ptr::null_mut() },
        ext: &EXT,
        metadata,
        module: Some(module.clone()),
    }));
    // SAFETY: the object was made above, and is counted only here.
    unsafe { anyfn::__private::object_created(function, kTVMFFIFunction) };
    // SAFETY: the object is new and has one reference, which passes to the result.
    let made = unsafe { ObjectRef::from_owned_or_null(function.cast()) };
    Any::new(made)?.get::<PackedFunc>()
}

unsafe extern "C" fn signature(handle: *mut c_void, result: *mut TVMFFIAny) -> c_int {
    // SAFETY: the handle is the function object itself, which the caller keeps alive.
    match unsafe { (*handle.cast::<CompiledFunction>()).metadata } {
        // SAFETY: this is a getter of the library convention; the caller passes a writable result.
        Some(metadata) => unsafe { metadata(ptr::null_mut(), ptr::null(), 0, result) },
        None => 0,
    }
}

unsafe extern "C" fn delete(handle: *mut c_void, flags: c_int) {
    let function: *mut CompiledFunction = handle.cast();
    if flags & STRONG != 0 {
        // SAFETY: no strong reference is left, so nothing else uses the content.
        drop(unsafe { (*function).module.take() });
    }
    if flags & WEAK != 0 {
        // SAFETY: the object was counted when it was made; the deleter frees its memory once.
        unsafe { anyfn::__private::object_freed(function, kTVMFFIFunction) };
        // SAFETY: `Box` allocated the memory with this type.
        drop(unsafe { Box::from_raw(function) });
    }
}

fn find(module: &Module, name: &str, query_imports: bool) -> Result<Option<PackedFunc>> {
    let code = code(module)?;
    if let Some(entry) = code.functions.iter().find(|entry| *entry.name == *name) {
        return function(module, entry).map(Some);
    }
    if !query_imports {
        return Ok(None);
    }
    let imports = lock(&code.imports).clone();
    for import in imports {
        if let Some(found) = find(&import, name, true)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

#[register("ffi.ModuleGetFunction")]
fn get_function(module: Module, name: &str, query_imports: bool) -> Result<Option<PackedFunc>> {
    find(&module, name, query_imports)
}

#[register("ffi.ModuleImplementsFunction")]
fn implements(module: Module, name: &str, query_imports: bool) -> Result<bool> {
    Ok(find(&module, name, query_imports)?.is_some())
}

fn add_names(module: &Module, query_imports: bool, names: &mut Vec<String>) -> Result<()> {
    let code = code(module)?;
    names.extend(code.functions.iter().map(|entry| entry.name.clone()));
    let imports = if query_imports { lock(&code.imports).clone() } else { Vec::new() };
    imports.iter().try_for_each(|import| add_names(import, true, names))
}

#[register("ffi.ModuleListFunctions")]
fn list_functions(module: Module, query_imports: bool) -> Result<Array<String>> {
    let mut names = Vec::new();
    add_names(&module, query_imports, &mut names)?;
    names.sort();
    names.dedup();
    Array::try_from_iter(names)
}

#[register("ffi.ModuleGetKind")]
fn get_kind(module: Module) -> Result<&'static str> {
    code(&module).map(|code| code.kind)
}

#[register("ffi.ModuleGetImports")]
fn get_imports(module: Module) -> Result<Array<Module>> {
    Array::try_from_iter(lock(&code(&module)?.imports).clone())
}

fn reaches(module: &Module, other: &Module) -> Result<bool> {
    if module.as_object().ptr_eq(other.as_object()) {
        return Ok(true);
    }
    let imports = lock(&code(module)?.imports).clone();
    for import in &imports {
        if reaches(import, other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[register("ffi.ModuleImportModule")]
fn import_module(module: Module, other: Module) -> Result<()> {
    if reaches(&other, &module)? {
        bail!("ValueError", "cannot import the module: it imports this one");
    }
    lock(&code(&module)?.imports).push(other);
    Ok(())
}

#[register("ffi.ModuleClearImports")]
fn clear_imports(module: Module) -> Result<()> {
    let cleared = mem::take(&mut *lock(&code(&module)?.imports));
    drop(cleared);
    Ok(())
}

#[register("ffi.ModuleLoadFromFile")]
fn load_from_file(path: &str) -> Result<Module> {
    bail!(
        "RuntimeError",
        "cannot load {path}: a WebAssembly module has no files; pass the bytes of a .wasm file"
    )
}

/// Looks up a function for the code of a module: in its imports, then among the global functions. The code has this function in place of
/// `TVMFFIEnvModLookupFromImports`; the function in `*out` is borrowed from the module.
///
/// # Safety
/// `context` must be a live module, `name` a C string, and `out` writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn anyfn_web_lookup(
    context: TVMFFIObjectHandle,
    name: *const c_char,
    out: *mut TVMFFIObjectHandle,
) -> c_int {
    anyfn::__private::trampoline(|| {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        // SAFETY: guaranteed by the caller.
        let Some(object) = (unsafe { ObjectRef::from_borrowed_or_null(context) }) else {
            bail!("RuntimeError", "cannot look up function {name}: the code belongs to no module")
        };
        let module = Any::from(object).get::<Module>()?;
        let imports = lock(&code(&module)?.imports).clone();
        let mut found = None;
        for import in &imports {
            found = find(import, &name, true)?;
            if found.is_some() {
                break;
            }
        }
        let found = match found {
            Some(found) => found,
            None => registry::get(&name)?,
        };
        let handle = found.as_object().as_handle();
        lock(&code(&module)?.lookups).push(found);
        // SAFETY: guaranteed by the caller.
        unsafe { out.write(handle) };
        Ok(())
    })
}
