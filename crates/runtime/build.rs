//! Exports the symbols of the runtime from the test programs, so that the libraries that the tests load can
//! resolve them. Also declares the configuration option `loom`, with which the tests of the worker threads
//! are compiled.

fn main() {
    println!("cargo::rustc-link-arg-tests=-rdynamic");
    println!("cargo::rustc-check-cfg=cfg(loom)");
    println!("cargo::rerun-if-changed=build.rs");
}
