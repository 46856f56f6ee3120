//! Build script that makes one of the two host programs export its runtime.

fn main() {
    anyfn_host::build::export_functions_of("host_exporting");
}
