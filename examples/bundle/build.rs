//! Lets the libraries that the program loads see the runtime that it contains.

fn main() {
    anyfn_host::build::export_functions();
}
