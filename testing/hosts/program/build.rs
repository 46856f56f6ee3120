//! Lets libraries see the runtime in one of the two programs.

fn main() {
    anyfn_host::build::export_functions_of("host_exporting");
}
