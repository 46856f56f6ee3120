//! Tests of libraries that cannot serve as the runtime.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyfn_attach::{AttachError, attach};

/// Compiles C source to a library `<name>.so` and returns its path. If no C compiler is available, reports a
/// skipped test and returns `None`.
fn compile(name: &str, source: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [file, library] =
        ["c", "so"].map(|ending| folder.join(format!("{}-{name}.{ending}", std::process::id())));
    std::fs::write(&file, source).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/c/include");
    let done = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-I"])
        .arg(include)
        .arg(&file)
        .arg("-o")
        .arg(&library)
        .output();
    match done {
        Err(error) => {
            anyfn_skip::report(&format!("{compiler}: {error}"));
            None
        }
        Ok(done) => {
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            Some(library)
        }
    }
}

fn is_loaded(path: &Path) -> bool {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is a valid C string, and nothing is loaded.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    !library.is_null()
}

/// Tests that a library with this table, a C expression, is refused and closed. Returns the error, or `None`
/// if no C compiler is available.
fn refusal(name: &str, table: &str) -> Option<AttachError> {
    let source = format!(
        "#include <anyfn/c_api.h>\n\
         static const AnyfnApi newer = {{sizeof(AnyfnApi), {{99, 0, 0}}}};\n\
         static const AnyfnApi second = {{sizeof(AnyfnApi), {{{}, {}, {}}}, 0, \"a second copy\"}};\n\
         const AnyfnApi* anyfn_api(void) {{ (void)newer, (void)second; return {table}; }}\n",
        anyfn_abi::ABI_VERSION.major,
        anyfn_abi::ABI_VERSION.minor,
        anyfn_abi::ABI_VERSION.patch,
    );
    let library = compile(name, &source)?;
    let error = attach(&library).unwrap_err();
    assert!(!is_loaded(&library), "{error}");
    Some(error)
}

#[test]
fn a_runtime_without_a_table_is_closed() {
    let Some(error) = refusal("none", "0") else { return };
    assert!(error.to_string().ends_with("is not an anyfn runtime: it has no function `anyfn_api`"), "{error}");
}

#[test]
fn a_runtime_of_another_version_is_closed() {
    let Some(error) = refusal("newer", "&newer") else { return };
    assert!(error.to_string().contains(" implements ABI 99.0.0 "), "{error}");
}

#[test]
fn a_runtime_that_refuses_is_closed() {
    let Some(error) = refusal("second", "&second") else { return };
    assert!(error.to_string().ends_with(": a second copy"), "{error}");
}
