//! Writes a C program that runs conformance cases. `anyfn-conformance emit-c FILE` writes the
//! program for the corpus, and `anyfn-conformance emit-peer-c FILE` the program for the testing
//! library of the peer.

use std::process::ExitCode;

use anyfn_conformance::{Corpus, emit_c};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["emit-c", file] => emit(anyfn_conformance::load(), "conformance_begin", file),
        ["emit-peer-c", file] => emit(Corpus::load_peer(), "conformance_begin_peer", file),
        _ => Err("usage: anyfn-conformance (emit-c | emit-peer-c) FILE".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn emit(corpus: Result<Corpus, String>, begin: &str, file: &str) -> Result<(), String> {
    let text = emit_c::program(&corpus?, begin)?;
    std::fs::write(file, text).map_err(|e| format!("{file}: {e}"))
}
