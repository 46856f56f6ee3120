//! Module kind `calc` in Rust. `calc LIB` loads a bundle and calls its functions; `calc make LIB FILE...`
//! writes a bundle.

use std::collections::HashMap;
use std::sync::Arc;

use anyfn::{Module, ModuleKind, PackedFunc, Result, TypedPackedFunc};
use anyfn_host::bundle::Bundle;

/// A module whose content consists of lines `NAME A B`, each of which defines a function x -> A * x + B.
struct Calc {
    code: Vec<u8>,
    kernels: HashMap<String, (i64, i64)>,
}

impl Calc {
    fn parse(code: &[u8]) -> Result<Calc> {
        let mut kernels = HashMap::new();
        for line in String::from_utf8_lossy(code).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, a, b] = words.as_slice() else {
                anyfn::bail!("ValueError", "a line of device code is `NAME A B`, got `{line}`");
            };
            let number = |word: &str| {
                word.parse::<i64>().map_err(|error| anyfn::error!("ValueError", "`{word}`: {error}"))
            };
            kernels.insert((*name).to_owned(), (number(a)?, number(b)?));
        }
        Ok(Calc { code: code.to_vec(), kernels })
    }
}

impl ModuleKind for Calc {
    fn kind(&self) -> &str {
        "calc"
    }

    fn get_function(self: &Arc<Self>, name: &str) -> Result<Option<PackedFunc>> {
        let Some((a, b)) = self.kernels.get(name).copied() else { return Ok(None) };
        Ok(Some(TypedPackedFunc::from_fn(move |x: i64| a * x + b).into()))
    }

    fn functions(&self) -> Vec<String> {
        self.kernels.keys().cloned().collect()
    }

    fn property_mask(&self) -> i32 {
        Module::SAVED | Module::RUNS
    }

    fn save_to_bytes(&self) -> Result<Vec<u8>> {
        Ok(self.code.clone())
    }
}

fn make(library: &str, files: &[&str]) -> Result<()> {
    let code = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels.calc");
    let bundle = Bundle::new().import(&Module::load(code)?);
    files.iter().fold(bundle, |bundle, file| bundle.file(file)).write(library)
}

fn run(library: &str) -> Result<()> {
    let module = Module::load(library)?;
    let show = |label: &str, function: PackedFunc, x: i64| -> Result<()> {
        println!("{label}={}", function.call((x,))?.get::<i64>()?);
        Ok(())
    };
    show("half", module.get_function("half")?, 20)?;
    show("sum_scaled", module.get_function("sum_scaled")?, 10)?;
    for calc in &module.imports()? {
        show("shift", calc.get_function("shift")?, 5)?;
    }
    Ok(())
}

fn main() -> Result<()> {
    Module::register_loader("calc", &["calc"], |code| Module::new(Calc::parse(code)?))?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["make", library, files @ ..] => make(library, files),
        [library] => run(library),
        _ => anyfn::bail!("ValueError", "usage: calc LIB, or calc make LIB FILE..."),
    }
}
