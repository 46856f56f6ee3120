//! Lets the libraries that the command loads see the runtime that it contains.

fn main() {
    anyfn_host::build::export_functions();
}
