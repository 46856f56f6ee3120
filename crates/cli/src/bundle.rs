//! `anyfn bundle`: writes a library and the modules that it imports to one file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyfn::{Module, ModuleKind, PackedFunc, Result};
use anyfn_host::bundle::{Bundle, read_file};

use crate::usage::wrong;

/// Module of a given kind whose content is the bytes of a file. The loader of that kind is not needed to
/// write the module to a bundle.
struct Carried {
    kind: String,
    bytes: Vec<u8>,
}

impl ModuleKind for Carried {
    fn kind(&self) -> &str {
        &self.kind
    }

    fn get_function(self: &Arc<Self>, _name: &str) -> Result<Option<PackedFunc>> {
        Ok(None)
    }

    fn property_mask(&self) -> i32 {
        Module::SAVED
    }

    fn save_to_bytes(&self) -> Result<Vec<u8>> {
        Ok(self.bytes.clone())
    }
}

/// Runs `anyfn bundle`. `words` are the command-line arguments after the command's name.
pub(crate) fn run(words: &[&str]) -> ExitCode {
    match write(words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Wrong(reason)) => wrong(&reason),
        Err(Failure::Failed(error)) => crate::output::report(&error.message()),
    }
}

enum Failure {
    /// Error in the command line.
    Wrong(String),
    Failed(anyfn::Error),
}

impl From<anyfn::Error> for Failure {
    fn from(error: anyfn::Error) -> Failure {
        Failure::Failed(error)
    }
}

fn write(words: &[&str]) -> Result<(), Failure> {
    let mut bundle = Bundle::new();
    let (mut out, mut loaded) = (None, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value =
            || words.next().copied().ok_or_else(|| Failure::Wrong(format!("there is nothing behind `{word}`")));
        bundle = match *word {
            "--import" => bundle.import(&Module::load(value()?)?),
            "--carry" => bundle.import(&carried(value()?)?),
            "--load" => {
                loaded.push(Module::load(value()?)?);
                bundle
            }
            "--linker" => bundle.linker(value()?),
            "--compiler" => bundle.compiler(value()?),
            _ if ["-I", "-D", "-O"].iter().any(|begin| word.starts_with(begin)) => bundle.compile_option(word),
            _ if ["-l", "-L", "-Wl,"].iter().any(|begin| word.starts_with(begin)) => bundle.link_option(word),
            _ if word.starts_with('-') => {
                return Err(Failure::Wrong(format!("`bundle` has no option `{word}`")));
            }
            _ if out.is_none() => {
                out = Some(PathBuf::from(word));
                bundle
            }
            _ => bundle.file(word),
        };
    }
    let Some(out) = out else {
        return Err(Failure::Wrong("`bundle` needs a name for the new file".to_owned()));
    };
    Ok(bundle.write(out)?)
}

/// Returns the module that `KIND=FILE` specifies.
fn carried(word: &str) -> Result<Module, Failure> {
    let Some((kind, file)) = word.split_once('=') else {
        return Err(Failure::Wrong(format!("`--carry` needs a kind and a file, as KIND=FILE, got `{word}`")));
    };
    let bytes =
        read_file(file.as_ref()).map_err(|why| anyfn::error!("RuntimeError", "Cannot read {file}: {why}"))?;
    Ok(Module::new(Carried { kind: kind.to_owned(), bytes })?)
}
