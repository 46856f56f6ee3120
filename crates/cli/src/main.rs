//! The `anyfn` command.
//!
//! `anyfn inspect FILE...` reports what libraries contain, need and were built for, without running any of their code; `anyfn
//! call` calls a function of a library; `anyfn bundle` writes a library and the modules that it imports to one file; `anyfn new`
//! creates a folder with a plugin; `anyfn doctor` tests what works on this machine; `anyfn rpc` serves clients of other machines.
#![forbid(unsafe_code)]

mod bundle;
mod call;
mod doctor;
mod inspect;
mod new;
mod output;
#[cfg(target_os = "linux")]
mod rpc;

use std::process::ExitCode;

use anyfn_host as _;

const USAGE: &str = "\
usage: anyfn COMMAND [OPTIONS]

  inspect [--json] FILE...   shows what libraries contain, what they need and were built for, without running their code
  call FILE NAME [ARG...]    calls a function of a library and prints the result; an ARG is JSON, or otherwise a string
  bundle [OPTION...] OUT FILE...
                             writes a library and the modules that it imports to one file; the library is linked from object
                             files, static archives and sources, or is a single library that is linked already:
                               --import FILE      import the module that a loader creates from a file
                               --carry KIND=FILE  import a module of a kind with the bytes of a file, without its loader
                               --load LIB         load a library first, for the module loaders that it registers
                               --linker CMD, --compiler CMD, -I -D -O (for the compiler), -l -L -Wl, (for the linker)
  new --rust|--c|--cpp DIR   creates a folder with a plugin that builds, tests and loads
  rpc server [OPTION...]     serves other processes and machines; each client has its own session process:
                               --host ADDRESS (127.0.0.1), --port N (9190; 0: any), --load LIB (in each session)
                               --key-file FILE, --keys FILE  keys of the clients that may connect, see `docs/rpc-server.md`
                               --allow NAME or BEGINNING*, --upload, --device NAME  what clients may use
                               --exclusive, --max-sessions N, --queue N, --limit NAME=N, --log FILE, --folder DIR
                               --isolation auto|required|off, --writable DIR  isolation of sessions by the kernel
                               --runner COMMAND   program that starts the sessions, such as `taskset -c 2` or an emulator
                               --worker WORD..., --show-output  program of the sessions; show its error output
  rpc key NAME               prints a new key
  doctor [--json]            tests what works on this machine and reports why the rest does not
  version                    prints the versions of this command and of its ABI
  help                       prints this help

The exit status is 0 on success, 1 on failure (a file does not load, a call fails, ...) and 2 if the command line is wrong.
";

fn main() -> ExitCode {
    anyfn::record_panic_locations();
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["help" | "--help" | "-h"] => output::print(USAGE),
        ["version" | "--version" | "-V"] => {
            let abi = anyfn::abi::ABI_VERSION;
            let (version, major, minor, patch) = (env!("CARGO_PKG_VERSION"), abi.major, abi.minor, abi.patch);
            output::print(&format!("anyfn {version} (ABI {major}.{minor}.{patch})\n"))
        }
        ["inspect", rest @ ..] => inspect::run(rest),
        ["bundle", rest @ ..] => bundle::run(rest),
        ["call", rest @ ..] => call::run(rest),
        ["new", rest @ ..] => new::run(rest),
        #[cfg(target_os = "linux")]
        ["rpc", rest @ ..] => rpc::run(rest),
        ["doctor", rest @ ..] => doctor::run(rest),
        [] => wrong("there is no command"),
        [command, ..] => wrong(&format!("there is no command `{command}`")),
    }
}

/// Reports that the command line is wrong.
fn wrong(reason: &str) -> ExitCode {
    output::complain(&format!("anyfn: {reason}\n\n{USAGE}"));
    ExitCode::from(2)
}
