//! Tests that each library has separate copies of the static variables in the ABI's headers. Other variables
//! of the same kind (`STB_GNU_UNIQUE`) are shared by all libraries of a process.

use std::ffi::{CString, c_void};

use anyfn_loader as _;

mod support;
use support::{compile, load};

/// C source of a library with two variables of the kind that the system shares between all libraries of a
/// process (`STB_GNU_UNIQUE`). The first has the name of a static variable in the ABI's headers.
const SOURCE: &str = r#"
#include <anyfn/anyfn.h>
int _Z11is_cpp_codev(void) { return 0; }
asm(".data\n"
    ".globl _ZZN3tvm3ffi4testEvE1x\n.type _ZZN3tvm3ffi4testEvE1x, @gnu_unique_object\n_ZZN3tvm3ffi4testEvE1x: .long 1\n"
    ".size _ZZN3tvm3ffi4testEvE1x, 4\n"
    ".globl of_somebody\n.type of_somebody, @gnu_unique_object\nof_somebody: .long 1\n.size of_somebody, 4\n.text\n");
extern int of_headers asm("_ZZN3tvm3ffi4testEvE1x");
extern int of_somebody;
void* addresses(int which) { return which == 0 ? &of_headers : &of_somebody; }
ANYFN_EXPORT(addresses) {
  int64_t which;
  if (anyfn_arg_int(args, num_args, 0, &which)) return -1;
  return anyfn_return_ptr(result, addresses((int)which));
}
"#;

/// Returns [`SOURCE`] with the four letters of `name` in the name of its first variable. Each test uses a
/// different name, because all libraries of the process would share a variable of the same name.
fn source(name: &str) -> String {
    assert_eq!(name.len(), 4);
    SOURCE.replace("4test", &format!("4{name}"))
}

/// Compiles [`source`] to a library and opens it without anyfn's loader, as another runtime would. Returns the
/// library's function `addresses`.
fn addresses_elsewhere(name: &str) -> extern "C" fn(i32) -> *mut c_void {
    let path = compile(&format!("unique_{name}"), &source(name), &[]).unwrap();
    let path = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a library without constructors.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null());
    // SAFETY: the library is open, and the name is NUL-terminated.
    let addresses = unsafe { libc::dlsym(handle, c"addresses".as_ptr()) };
    assert!(!addresses.is_null());
    // SAFETY: the symbol of this name is a function of this type.
    unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(i32) -> *mut c_void>(addresses) }
}

/// Tests that the variables of a C++ library are not shared even if they are in another library that it needs.
#[test]
fn variables_of_a_needed_library_are_not_shared_either() {
    let Some(inner) = compile("unique_inner", &source("deep"), &["-Wl,-soname,unique_inner.so"]) else {
        return;
    };
    let outer = r#"
        #include <anyfn/anyfn.h>
        int _Z11is_cpp_codev2(void) { return 0; }
        void* addresses(int which);
        ANYFN_EXPORT(address) { return anyfn_return_ptr(result, addresses(0)); }
        ANYFN_EXPORT(fail) { return anyfn_raise("ValueError", "so that the library needs the runtime"); }"#;
    // The dynamic loader finds the library by this name.
    let folder = inner.parent().unwrap().join("unique_needed");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(&inner, folder.join("unique_inner.so")).unwrap();
    let flags = [format!("-Wl,-rpath,{}", folder.display()), format!("-L{}", folder.display())];
    let flags = [flags[0].as_str(), flags[1].as_str(), "-l:unique_inner.so"];
    let Some(path) = compile("unique_outer", outer, &flags) else { return };
    let module = load(&path).unwrap();
    let ours =
        module.get_function("address").unwrap().call(()).unwrap().get::<anyfn::OpaquePtr>().unwrap().as_ptr();
    assert_ne!(ours, addresses_elsewhere("deep")(0));
}

#[test]
fn variables_of_the_headers_are_not_shared_with_a_later_library() {
    let Some(path) = compile("unique_first", &source("late"), &[]) else { return };
    let module = load(&path).unwrap();
    let ours = |which: i64| {
        let addresses = module.get_function("addresses").unwrap();
        addresses.call((which,)).unwrap().get::<anyfn::OpaquePtr>().unwrap().as_ptr()
    };
    let theirs = addresses_elsewhere("late");
    assert_ne!(ours(0), theirs(0));
    if cfg!(target_env = "gnu") {
        // Other unique variables are shared, as their authors intend.
        assert_eq!(ours(1), theirs(1));
    }
}
