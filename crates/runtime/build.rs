//! Lets the libraries that this crate's tests load see the runtime in the test program, and knows the name by which the
//! tests of threads are distinguished.

fn main() {
    println!("cargo::rustc-link-arg-tests=-rdynamic");
    println!("cargo::rustc-check-cfg=cfg(loom)");
    println!("cargo::rerun-if-changed=build.rs");
}
