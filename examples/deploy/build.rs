//! Exports the runtime in the program to the libraries that it loads.

fn main() {
    anyfn_host::build::export_functions();
}
