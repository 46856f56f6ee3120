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

  inspect [--json] FILE...   what libraries hold, need and were built for; none of their code runs
  call FILE NAME [ARG...]    the result of a function of a library; arguments are JSON, or text as it stands
  bundle [OPTION...] OUT FILE...
                             a library of object files, archives, sources or of one library that is linked already, with
                             the modules that it imports in the same file:
                               --import FILE      a module that a loader makes of a file
                               --carry KIND=FILE  the bytes of a file as a module of a kind, whose loader is not needed
                               --load LIB         load this library before, for the loaders that it registers
                               --linker CMD, --compiler CMD, -I -D -O (for the compiler), -l -L -Wl, (for the linker)
  new --rust|--c|--cpp DIR   a folder with a plugin that builds, tests and loads
  rpc server [OPTION...]     serves other processes and machines, each client in a process of its own:
                               --host ADDRESS (127.0.0.1), --port N (9190; 0: any), --load LIB (in each session)
                               --key-file FILE, --keys FILE  who may come, see `docs/rpc-server.md`
                               --allow NAME or BEGINNING*, --upload, --device NAME  what they may do
                               --exclusive, --max-sessions N, --queue N, --limit NAME=N, --log FILE, --folder DIR
                               --isolation auto|required|off, --writable DIR  what the kernel keeps sessions from
                               --runner COMMAND   starts the sessions, such as `taskset -c 2`, or an emulator
                               --worker WORD..., --show-output  the program of the sessions, and what it writes
  rpc key NAME               a new key
  doctor [--json]            what works on this machine, tried, and why the rest does not
  version                    version of this command and of its ABI
  help                       print this

The status is 0 if all went well, 1 if not (a file would not load, a call fails, ...), 2 if the command line is wrong.
";

fn main() -> ExitCode {
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
