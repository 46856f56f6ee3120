//! Build script that exports the functions of the runtime from one of the two host programs.

fn main() {
    anyfn_host::build::export_functions_of("host_exporting");
}
