//! For build scripts of programs: add `anyfn-host` with the feature `build` to `[build-dependencies]`.

/// Lets libraries that the program loads find the functions of the runtime in it.
///
/// Without this the linker keeps them to the program, and loading a library that calls them fails. A program that links
/// `libanyfn.so` does not need it.
///
/// ```
/// // In build.rs:
/// anyfn_host::build::export_functions();
/// ```
pub fn export_functions() {
    // For all targets: naming a kind that the package has none of is an error.
    std::println!("cargo:rustc-link-arg=-rdynamic");
}

/// The same for one binary of a package that has several.
///
/// ```
/// // In build.rs:
/// anyfn_host::build::export_functions_of("server");
/// ```
pub fn export_functions_of(binary: &str) {
    std::println!("cargo:rustc-link-arg-bin={binary}=-rdynamic");
}
