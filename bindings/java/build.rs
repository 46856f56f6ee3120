//! Links the library so that it stays mapped. A Java VM unmaps a library together with the class loader that loaded it, but functions
//! that Java has registered, and the hooks of the runtime, point into the library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
