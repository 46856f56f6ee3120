//! Variables that the system makes one for the whole process: those of the headers of the ABI stay a library's own.

use std::ffi::{CString, c_void};

use anyfn_core as _;

mod support;
use support::{compile, load};

/// Two unique variables, of which the first one has the name of one in a function of the headers.
const SOURCE: &str = r#"
#include <anyfn/anyfn.h>
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

#[test]
fn variables_of_the_headers_are_not_shared_with_a_later_library() {
    let (Some(path), Some(other)) =
        (compile("unique_first", SOURCE, &[]), compile("unique_later", SOURCE, &[]))
    else {
        return;
    };
    let module = load(&path).unwrap();
    let ours = |which: i64| {
        let addresses = module.get_function("addresses").unwrap();
        addresses.call((which,)).unwrap().get::<*mut c_void>().unwrap()
    };
    let other = CString::new(other.to_str().unwrap()).unwrap();
    // As another runtime would come, by no means of ours.
    // SAFETY: a library without constructors.
    let handle = unsafe { libc::dlopen(other.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null());
    // SAFETY: an open library, and a name that ends.
    let theirs = unsafe { libc::dlsym(handle, c"addresses".as_ptr()) };
    assert!(!theirs.is_null());
    // SAFETY: the function of this name.
    let theirs: extern "C" fn(i32) -> *mut c_void = unsafe { std::mem::transmute(theirs) };
    assert_ne!(ours(0), theirs(0));
    if cfg!(target_env = "gnu") {
        // The others are as their makers want them.
        assert_eq!(ours(1), theirs(1));
    }
}
