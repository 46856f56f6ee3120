//! Sets the soname of the shared library, and binds its calls to its own functions at link time
//! (`-Bsymbolic`).

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libanyfn.so");
        // The symbols at the boundaries of the registration section are private to this library.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,start-stop-visibility=hidden");
        // Another runtime in the process may have functions of the same names, which calls of this library must not reach.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    }
}
