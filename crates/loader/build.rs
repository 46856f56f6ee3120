//! Lets the libraries that this crate's tests load see the runtime in the test program.

fn main() {
    println!("cargo::rustc-link-arg-tests=-rdynamic");
    println!("cargo::rerun-if-changed=build.rs");
}
