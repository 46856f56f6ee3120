//! `anyfn-conformance emit-c FILE`: writes the corpus as a C program.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["emit-c", file] => anyfn_conformance::load()
            .and_then(|corpus| anyfn_conformance::emit_c::program(&corpus))
            .and_then(|text| std::fs::write(file, text).map_err(|e| format!("{file}: {e}"))),
        _ => Err("usage: anyfn-conformance emit-c FILE".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
