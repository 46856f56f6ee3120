//! `anyfn bundle`: writes a library and the modules that it imports to one file.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyfn::{Module, ModuleKind, PackedFunc, Result};
use anyfn_host::bundle::{Bundle, read_file};
use lexopt::{Arg, Parser, ValueExt};

/// Module whose kind and content are given on the command line. It can be written to a bundle even if no
/// loader for that kind is available.
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

/// Runs `anyfn bundle`. `args` are the command-line arguments after the command's name.
pub(crate) fn run(args: Parser) -> Result<ExitCode, lexopt::Error> {
    match write(args) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Failure::Wrong(error)) => Err(error),
        Err(Failure::Failed(error)) => Ok(crate::output::report(&error.message())),
    }
}

enum Failure {
    /// Error in the command line.
    Wrong(lexopt::Error),
    Failed(anyfn::Error),
}

impl From<lexopt::Error> for Failure {
    fn from(error: lexopt::Error) -> Failure {
        Failure::Wrong(error)
    }
}

impl From<anyfn::Error> for Failure {
    fn from(error: anyfn::Error) -> Failure {
        Failure::Failed(error)
    }
}

/// Prefixes of the options that are passed to the compiler unchanged.
const FOR_COMPILER: [&str; 3] = ["-I", "-D", "-O"];
/// Prefixes of the options that are passed to the linker unchanged.
const FOR_LINKER: [&str; 3] = ["-l", "-L", "-Wl,"];

fn write(mut args: Parser) -> Result<(), Failure> {
    let mut bundle = Bundle::new();
    let (mut out, mut loaded) = (None, Vec::new());
    // True after `--`, which lexopt skips: what follows is never an option.
    let mut only_files = false;
    loop {
        only_files |= args.try_raw_args().is_some_and(|words| words.peek().is_some_and(|word| word == "--"));
        // Taken before lexopt splits `-Idir` and removes the `=` of `-I=dir`.
        if !only_files && let Some(option) = passed_on(&mut args, &FOR_COMPILER)? {
            bundle = bundle.compile_option(&option);
            continue;
        }
        if !only_files && let Some(option) = passed_on(&mut args, &FOR_LINKER)? {
            bundle = bundle.link_option(&option);
            continue;
        }
        let Some(arg) = args.next()? else { break };
        bundle = match arg {
            Arg::Long("import") => bundle.import(&Module::load(&args.value()?.string()?)?),
            Arg::Long("carry") => bundle.import(&carried(&args.value()?.string()?)?),
            Arg::Long("load") => {
                loaded.push(Module::load(&args.value()?.string()?)?);
                bundle
            }
            Arg::Long("linker") => bundle.linker(&args.value()?.string()?),
            Arg::Long("compiler") => bundle.compiler(&args.value()?.string()?),
            Arg::Value(file) if out.is_none() => {
                out = Some(PathBuf::from(file));
                bundle
            }
            Arg::Value(file) => bundle.file(PathBuf::from(file)),
            Arg::Short(_) | Arg::Long(_) => return Err(arg.unexpected().into()),
        };
    }
    let Some(out) = out else {
        return Err(Failure::Wrong("`bundle` needs a name for the new file".into()));
    };
    Ok(bundle.write(out)?)
}

/// If the next argument begins with one of `beginnings`, removes it from `args` and returns it.
/// Otherwise returns `None`.
fn passed_on(args: &mut Parser, beginnings: &[&str]) -> Result<Option<String>, lexopt::Error> {
    let Some(mut words) = args.try_raw_args() else { return Ok(None) };
    let is_passed_on =
        |word: &OsStr| beginnings.iter().any(|begin| word.as_encoded_bytes().starts_with(begin.as_bytes()));
    words.next_if(is_passed_on).map(ValueExt::string).transpose()
}

/// Returns the module that the argument `KIND=FILE` of `--carry` specifies.
fn carried(word: &str) -> Result<Module, Failure> {
    let Some((kind, file)) = word.split_once('=') else {
        return Err(Failure::Wrong(
            format!("`--carry` needs a kind and a file, as KIND=FILE, got `{word}`").into(),
        ));
    };
    let bytes =
        read_file(file.as_ref()).map_err(|why| anyfn::error!("RuntimeError", "Cannot read {file}: {why}"))?;
    Ok(Module::new(Carried { kind: kind.to_owned(), bytes })?)
}
