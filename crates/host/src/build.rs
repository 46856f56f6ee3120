//! Functions that the build script of a program calls. The package needs `anyfn-host` with the feature
//! `build` in `[build-dependencies]`.

/// Exports the functions of the runtime from the program, so that libraries loaded by the program can find
/// them.
///
/// Without this, the linker does not export them, and loading a library that calls them fails. A program that links `libanyfn.so`
/// does not need it.
///
/// ```
/// // In build.rs:
/// anyfn_host::build::export_functions();
/// ```
pub fn export_functions() {
    // The argument applies to all targets, because Cargo rejects an argument for a kind of target that the
    // package lacks.
    std::println!("cargo:rustc-link-arg=-rdynamic");
}

/// Exports the functions of the runtime from one binary of a package with several binaries.
///
/// ```
/// // In build.rs:
/// anyfn_host::build::export_functions_of("server");
/// ```
pub fn export_functions_of(binary: &str) {
    std::println!("cargo:rustc-link-arg-bin={binary}=-rdynamic");
}
