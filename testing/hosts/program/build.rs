//! Makes one of the two programs export its runtime.

fn main() {
    anyfn_host::build::export_functions_of("host_exporting");
}
