//! Links the program so that it exports the functions of the runtime to the libraries that it loads.

fn main() {
    anyfn_host::build::export_functions();
}
