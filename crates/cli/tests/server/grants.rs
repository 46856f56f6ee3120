//! Tests that functions and services that were not granted cannot be called.

use crate::hand::*;
use crate::rig::{LOADS, Server, plugin, put, texts};

/// Returns the names of all functions that are registered in a session process.
fn all_functions() -> Vec<String> {
    let server = Server::open(&["--allow", "*"]);
    let mut line = server.line();
    line.send(&ask(1, NAMES, &[]));
    let names = texts(&line.answer(1).unwrap());
    assert!(names.len() > 100, "{names:?}");
    for name in ["testing.concat", "rpc.start_server", "ffi.GetGlobalFuncMetadata", "anyfn.tensor_zeros"] {
        assert!(names.iter().any(|other| other == name), "no {name} in {names:?}");
    }
    // A function that the other tests expect to be refused is available if it is granted.
    line.global(2, "rpc.start_server");
    drop(line);
    server.finish();
    names
}

/// Checks that a server refuses every look-up of a function by name, and that its services return
/// nothing that was not granted.
fn gives_nothing(server: Server, with_upload: bool) {
    let names = all_functions();
    let mut line = server.line();
    let mut refused = 0;
    for (id, name) in (1..).zip(&names) {
        line.send(&ask(id, GLOBAL, &[text(name)]));
        let (kind, message) = line.answer(id).unwrap_err();
        assert_eq!(kind, "PermissionError", "{name}: {message}");
        refused += 1;
    }
    assert_eq!(refused, names.len());
    line.send(&ask(1 << 30, NAMES, &[]));
    assert_eq!(line.answer(1 << 30).unwrap(), array(&[]));
    // Answers may arrive in any order, because calls may run at the same time.
    for args in [vec![], vec![text("testing.concat")], vec![int(1 << 32), text("testing.concat")]] {
        // Codes up to 255, which include all services, are called with all arguments, other codes only with the first.
        let last = if args.is_empty() { u16::MAX } else { 255 };
        for first in (0..=last).step_by(32) {
            for code in first..=first | 31 {
                line.send(&ask(u64::from(code) + 1, code, &args));
            }
            let mut left = 32;
            while left > 0 {
                let (kind, _, id, payload) = line.receive().unwrap();
                let code = (id - 1) as u16;
                match kind {
                    RETURN => {
                        let harmless = match code {
                            INFO => payload[0] == 12,
                            NAMES => payload == array(&[]),
                            FILES => with_upload && payload == [12, 0, 0, 0, 0],
                            _ => false,
                        };
                        assert!(harmless, "service {code} gives {payload:?}");
                    }
                    ERROR => {
                        let (kind, message) = error_of(&payload);
                        assert!(
                            code <= REGISTER && code > 0 || kind == "ValueError",
                            "{code}: {kind} {message}"
                        );
                    }
                    _ => continue,
                }
                left -= 1;
            }
        }
    }
    if with_upload {
        // Functions of a module come from its library, not from the process. Functions that it registers are not granted.
        let digest = put(&mut line, 1, &std::fs::read(plugin()).unwrap());
        line.send(&ask(2, LOAD, &[text(&digest)]));
        let module = line.answer(2).unwrap();
        let module = i64::from_le_bytes(module[1..9].try_into().unwrap());
        for (id, name) in (3..).zip(&names) {
            line.send(&ask(id, MODULE_FUNCTION, &[int(module), text(name)]));
            // There is no function and no signature.
            assert_eq!(line.answer(id).unwrap(), array(&[none(), none()]), "{name} of a module");
        }
        line.send(&ask(1, GLOBAL, &[text("testing.concat")]));
        assert_eq!(line.answer(1).unwrap_err().0, "PermissionError");
    } else {
        for code in [HAS, PUT, FILES, REMOVE, LOAD] {
            line.send(&ask(1, code, &[text(&"0".repeat(64)), int(1)]));
            assert_eq!(line.answer(1).unwrap_err().0, "PermissionError", "{code}");
        }
        // The client cannot register a function at the server, whether its name is registered already or not.
        for name in ["testing.concat", "any.other"] {
            line.send(&ask(1, REGISTER, &[text(name), mine(1, 1, "ffi.Function"), crate::rig::bool(true)]));
            assert_eq!(line.answer(1).unwrap_err().0, "PermissionError");
        }
    }
    drop(line);
    server.finish();
}

#[test]
fn a_server_that_was_told_nothing() {
    gives_nothing(Server::open(&[]), false);
}

#[test]
fn a_key_that_grants_nothing() {
    let secret = ALICE.rsplit(':').next().unwrap();
    let keys = format!("{{\"keys\": {{\"alice\": {{\"secret\": \"{secret}\"}}}}}}");
    gives_nothing(Server::start(LOADS, Some(("--keys", &keys))), false);
}

#[test]
fn a_key_that_grants_uploads_alone() {
    // The server does not load the functions of the tests, because the uploaded library would register them again.
    gives_nothing(Server::start(&["--upload"], Some(("--key-file", ALICE))), true);
}
