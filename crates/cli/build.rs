//! Exports the symbols of the runtime from the executable `anyfn`, so that the libraries that it loads can
//! resolve them.

fn main() {
    // `anyfn_host::build::export_functions` prints the same line. Calling it here would compile the runtime a
    // second time.
    println!("cargo:rustc-link-arg=-rdynamic");
}
