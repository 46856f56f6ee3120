//! Tests that the program can write a bundle in one process and call it in another.

use std::path::Path;
use std::process::Command;

fn calc(words: &[&Path]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_calc")).args(words).output().expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn a_bundle_is_written_and_called() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let object = folder.join("kernel.o");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut compile = Command::new(&compiler);
    compile.args(["-O2", "-fPIC", "-c", "-I"]).arg(here.join("../../bindings/c/include"));
    match compile.arg(here.join("kernel.c")).arg("-o").arg(&object).status() {
        Err(error) => anyfn_skip::skip!("{compiler}: {error}"),
        Ok(status) => assert!(status.success()),
    }
    let (make, library) = (Path::new("make"), folder.join("calc.so"));
    assert_eq!(calc(&[make, &library, &object]), Ok(String::new()));
    assert_eq!(calc(&[&library]), Ok("half=10\nsum_scaled=145\nshift=105\n".to_owned()));
    let error =
        calc(&[make, &folder.join("none.so"), &folder.join("none.o")]).expect_err("there is no such file");
    assert!(error.contains("none.o: No such file"), "{error}");
}
