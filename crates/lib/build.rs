//! Sets the name that programs record for the shared library, and binds its own calls to itself.

use std::env;

fn main() {
    println!("cargo:rerun-if-env-changed=ANYFN_SONAME");
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        let name = env::var("ANYFN_SONAME").unwrap_or_else(|_| "libanyfn.so".into());
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{name}");
        // The boundaries of the section of registrations are nobody else's business.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,start-stop-visibility=hidden");
        // Another runtime in the process may have functions of the same names; ours must not end up there.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    }
}
