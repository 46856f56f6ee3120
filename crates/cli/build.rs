//! Lets the libraries that the command loads see the runtime that it contains.

fn main() {
    // What `anyfn_host::build::export_functions` prints: the runtime is not compiled a second time for that.
    println!("cargo:rustc-link-arg=-rdynamic");
}
