//! Tests of the errors that users of the library see when the remote process has exited or responds slowly.

use std::time::{Duration, Instant};

use anyfn::{Any, PackedFunc, registry};

use crate::rig::*;

/// Checks that a client receives errors once its session process has been killed. `act` receives the remote
/// function `name`, calls it, and kills the process before or during the call.
fn killed(server: &Server, name: &str, act: impl FnOnce(&PackedFunc) -> anyfn::Result<Any>) {
    let session = server.session(30.0).unwrap();
    let function = session.get_function(name).unwrap();
    let started = Instant::now();
    let error = act(&function).unwrap_err();
    assert_eq!(error.kind(), "ConnectionError", "{error}");
    assert!(started.elapsed() < SOON);
    // Every later call fails as well.
    assert_eq!(function.call(()).unwrap_err().kind(), "ConnectionError");
    assert_eq!(session.get_function(name).map(drop).unwrap_err().kind(), "ConnectionError");
    server.serves();
}

fn kill_all(pids: Vec<u32>) {
    pids.into_iter().for_each(|pid| signal(pid, libc::SIGKILL));
}

#[test]
fn a_process_that_is_killed_is_a_connection_error() {
    for server in [Server::open(GRANTED), Server::with_key(GRANTED)] {
        killed(&server, "testing.concat", |concat| {
            kill_all(server.children());
            concat.call(("a", "b"))
        });
        killed(&server, "testing.sleep", |sleep| {
            let processes = server.children();
            let killer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                kill_all(processes);
            });
            let result = sleep.call((600.0, false));
            killer.join().unwrap();
            result
        });
        // The process is killed during a callback, whose answer is lost.
        killed(&server, "testing.apply", |apply| {
            let processes = server.children();
            let callback = PackedFunc::new(move |_| {
                kill_all(processes.clone());
                Any::new(1)
            });
            apply.call((callback,))
        });
        // The process is killed during an upload.
        let session = server.session(30.0).unwrap();
        let processes = server.children();
        let progress = PackedFunc::new(move |args| {
            if args.get::<u64>(0)? > 1 << 20 {
                kill_all(processes.clone());
            }
            Any::new(())
        });
        let content = vec![7; 32 << 20];
        let sent = registry::get("rpc.connect").is_ok().then(|| {
            let bytes = anyfn::Bytes::from(&content[..]);
            session.send_file(bytes, Some(progress))
        });
        assert_eq!(sent.unwrap().unwrap_err().kind(), "ConnectionError");
        drop(session);
        server.finish();
    }
}

#[test]
fn waiting_in_the_queue_and_killed() {
    let server = Server::open(&[GRANTED, &["--exclusive"]].concat());
    let first = server.line();
    let served = server.children();
    let (host, port) = (server.host.clone(), server.port);
    let waiting = std::thread::spawn(move || {
        let connect = registry::get("rpc.connect").unwrap();
        connect.call((&*host, port, Any::NONE, 60.0)).map(drop).unwrap_err()
    });
    let queued =
        wait_for(|| server.children().into_iter().find(|pid| !served.contains(pid)), || "nobody waits".into());
    std::thread::sleep(Duration::from_millis(300));
    signal(queued, libc::SIGKILL);
    assert_eq!(waiting.join().unwrap().kind(), "ConnectionError");
    drop(first);
    server.finish();
}

#[test]
fn a_server_whose_folder_is_gone_makes_another() {
    let server = Server::open(GRANTED);
    let of_server = || std::fs::read_dir(server.root.join("sessions")).unwrap().next();
    let first = of_server().unwrap().unwrap().path();
    let line = server.line();
    std::fs::remove_dir_all(&first).unwrap();
    server.serves();
    assert!(!first.exists());
    // If no folder can be created, clients get an error. They are served when one can be created again.
    drop(line);
    let sessions = server.root.join("sessions");
    std::fs::remove_dir_all(&sessions).unwrap();
    std::fs::write(&sessions, "in the way").unwrap();
    let error = server.session(30.0).map(drop).unwrap_err();
    assert_eq!(error.kind(), "ConnectionError");
    assert!(error.message().contains("cannot start a session now: its log states the reason"), "{error}");
    let log = server.log();
    assert!(log.iter().any(|line| line["event"] == "failed" && line["detail"]["what"] == "start"), "{log:#?}");
    std::fs::remove_file(&sessions).unwrap();
    std::fs::create_dir(&sessions).unwrap();
    server.finish();
}
