//! Functions for build scripts of programs: add `anyfn-host` with the feature `build` to `[build-dependencies]`.

/// Exports the functions of the runtime from the program, so that libraries which it loads can find them.
///
/// Without this, the linker does not export them, and loading a library that calls them fails. A program that links `libanyfn.so`
/// does not need it.
///
/// ```
/// // In build.rs:
/// anyfn_host::build::export_functions();
/// ```
pub fn export_functions() {
    // For all targets: naming a kind of target that the package does not have is an error.
    std::println!("cargo:rustc-link-arg=-rdynamic");
}

/// Exports the functions of the runtime from one binary of a package that has several.
///
/// ```
/// // In build.rs:
/// anyfn_host::build::export_functions_of("server");
/// ```
pub fn export_functions_of(binary: &str) {
    std::println!("cargo:rustc-link-arg-bin={binary}=-rdynamic");
}
