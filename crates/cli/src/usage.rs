//! Help of the command, and error reports about its command line.

use std::process::ExitCode;

use crate::output;

/// Help that `anyfn help` prints.
pub(crate) const USAGE: &str = "\
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

/// Reports an error in the command line and returns the exit status 2.
pub(crate) fn wrong(reason: &str) -> ExitCode {
    output::complain(&format!("anyfn: {reason}\n\n{USAGE}"));
    ExitCode::from(2)
}
