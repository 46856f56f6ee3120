//! Links the addon so that it stays mapped. Node.js unmaps an addon together with the worker that loaded it, but functions that
//! JavaScript has registered point into the addon.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
