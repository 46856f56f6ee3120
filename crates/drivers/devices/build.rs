//! Keeps the library mapped until the process ends, because libraries of vendors start threads, and register functions that run at the end
//! of the process or in forked children.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
        // The symbols at the boundaries of the registration section are private to this library.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,start-stop-visibility=hidden");
    }
}
