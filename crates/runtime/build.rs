//! Exports the symbols of the runtime from the test programs, so that the libraries that the tests load can
//! resolve them.

fn main() {
    println!("cargo::rustc-link-arg-tests=-rdynamic");
    println!("cargo::rerun-if-changed=build.rs");
}
