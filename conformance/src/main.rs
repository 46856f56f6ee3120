//! Writes a C or C++ program that runs conformance cases. `anyfn-conformance emit-c FILE` writes the
//! C program for the corpus, `anyfn-conformance emit-cpp FILE` the C++ program, and
//! `anyfn-conformance emit-peer-c FILE` the C program for the testing library of the peer. `emit-c-plugin`
//! and `emit-cpp-plugin` write libraries for the matrix of frontends.

use std::process::ExitCode;

use anyfn_conformance::{Corpus, emit_c, emit_cpp};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["emit-c", file] => {
            write(anyfn_conformance::load().and_then(|c| emit_c::program(&c, "conformance_begin")), file)
        }
        ["emit-c-plugin", file] => write(anyfn_conformance::load().and_then(|c| emit_c::plugin(&c)), file),
        ["emit-cpp-plugin", file] => write(anyfn_conformance::load().and_then(|c| emit_cpp::plugin(&c)), file),
        ["emit-cpp", file] => write(anyfn_conformance::load().and_then(|c| emit_cpp::program(&c)), file),
        ["emit-peer-c", file] => {
            write(Corpus::load_peer().and_then(|c| emit_c::program(&c, "conformance_begin_peer")), file)
        }
        _ => Err(
            "usage: anyfn-conformance (emit-c | emit-cpp | emit-c-plugin | emit-cpp-plugin | emit-peer-c) FILE"
                .into(),
        ),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn write(program: Result<String, String>, file: &str) -> Result<(), String> {
    std::fs::write(file, program?).map_err(|e| format!("{file}: {e}"))
}
