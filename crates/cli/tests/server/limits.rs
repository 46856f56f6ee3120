//! Tests that all resources are limited (attacks of class R15), and that the server ends a session that holds
//! resources without using them.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::hand::*;
use crate::rig::*;

fn limited(limits: &[&str]) -> Server {
    let mut words = GRANTED.to_vec();
    limits.iter().for_each(|limit| words.extend(["--limit", limit]));
    Server::with_key(&words)
}

#[test]
fn within_a_session() {
    let server = limited(&[
        "handles=10",
        "memory_bytes=1000000",
        "calls=8",
        "store_bytes=1000000",
        "message_bytes=300000",
    ]);
    let mut line = server.line();
    let tensors: Vec<u64> = (1..=10).map(|id| line.empty(id, 16)).collect();
    line.send(&ask(20, EMPTY, &[shape(&[1]), dtype(1, 8, 1), device(1, 0)]));
    assert_eq!(line.answer(20).unwrap_err().0, "PermissionError");
    line.send(&release(tensors[9], 1));
    line.send(&ask(21, EMPTY, &[shape(&[1_000_000]), dtype(1, 8, 1), device(1, 0)]));
    assert_eq!(line.answer(21).unwrap_err().0, "MemoryError");
    for id in 30..38 {
        line.send(&ask(id, WRITE, &[int(tensors[0] as i64), int(0), int(16)]));
    }
    line.send(&ask(38, INFO, &[]));
    assert!(line.answer(38).unwrap_err().1.contains("in progress"));
    for id in 30..38 {
        line.send(&frame(CANCEL, 0, id, b""));
        assert_eq!(line.answer(id).unwrap_err().0, "InterruptedError");
    }
    line.send(&ask(40, PUT, &[text(&"1".repeat(64)), int(600_000)]));
    line.send(&ask(41, PUT, &[text(&"2".repeat(64)), int(600_000)]));
    assert_eq!(line.answer(41).unwrap_err().0, "PermissionError");
    // All resources are released with the session.
    server.serves();
    for _ in 0..2 {
        line.send(&frame(CALL, 1, 2, &[0; 200_000]));
    }
    line.drain();
    server.finish();
}

#[test]
fn of_a_process() {
    let server =
        limited(&["process_bytes=600000000", "cpu_seconds=1", "memory_bytes=100000000000", "files=64"]);
    let mut other = server.line();
    // A process that needs more memory than it may have gets an error or ends; no other session is affected.
    let mut line = server.line();
    line.send(&ask(1, EMPTY, &[shape(&[2_000_000_000]), dtype(1, 8, 1), device(1, 0)]));
    while line.receive().is_some_and(|answer| answer.0 != ERROR) {}
    drop(line);
    // Files, each of which is open during its upload.
    let mut line = server.line();
    let mut refused = 0;
    for id in 1..=62 {
        line.send(&ask(id, PUT, &[text(&format!("{id:064x}")), int(5)]));
    }
    line.send(&ask(100, FILES, &[]));
    while let Some((kind, _, id, payload)) = line.receive() {
        match kind {
            ERROR => refused += usize::from(error_of(&payload).0 == "OSError"),
            RETURN if id == 100 => break,
            _ => {}
        }
    }
    assert!(refused > 0, "62 files beside those that a process has");
    drop(line);
    // Processor time.
    let mut line = server.line();
    let (nop, many) = (line.global(1, "testing.nop"), line.global(2, "testing.call_n"));
    line.send(&call(3, 0, 0, many, &[yours(nop), int(1 << 60)]));
    line.drain();
    server.ended("more processor time");
    assert_eq!(
        {
            other.send(&ask(1, INFO, &[]));
            other.answer(1).unwrap()[0]
        },
        12
    );
    drop(other);
    server.finish();
}

#[test]
fn of_a_key() {
    // The time is long enough for the third client to arrive while the others are served.
    let server = limited(&["sessions=2", "seconds=8"]);
    let started = Instant::now();
    let (mut one, mut two) = (server.line(), server.line());
    // The third client waits until one of the others has used up its time.
    let three = server.line();
    assert_eq!(three.places, [1]);
    let waited = started.elapsed();
    assert!(waited > Duration::from_secs(7) && waited < SOON, "{waited:?}");
    one.drain();
    two.drain();
    server.ended("took longer than its key allows");
    drop(three);
    server.finish();
}

#[test]
fn idle_sessions_end() {
    let server = limited(&["idle_seconds=4"]);
    // Clients that are silent without a call, during an upload, during a callback, and within a frame.
    let silent = server.line();
    let mut uploading = server.line();
    let tensor = uploading.empty(1, 1 << 20);
    uploading.send(&ask(2, WRITE, &[int(tensor as i64), int(0), int(1 << 20)]));
    uploading.send(&data(2, 0, &[1; 1000]));
    let mut called_back = server.line();
    let apply = called_back.global(1, "testing.apply");
    called_back.send(&call(2, 0, 0, apply, &[mine(1, 1, "ffi.Function")]));
    let mut half = server.line();
    half.send(&frame(PING, 0, 1, b"")[..10]);
    // This client waits for a long call, so it is not idle, although it is silent.
    let mut busy = server.line();
    let sleep = busy.global(1, "testing.sleep");
    busy.send(&call(2, 0, 0, sleep, &[float(9.0), bool(true)]));
    // This client sends a message from time to time.
    let mut alive = server.line();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(7) || server.children().len() > 2 {
        assert!(started.elapsed() < SOON, "{} sessions are left", server.children().len());
        assert!(alive.serves(1));
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(server.children().len(), 2, "those that are not idle");
    for (name, mut line) in
        [("silent", silent), ("upload", uploading), ("callback", called_back), ("half", half)]
    {
        let mut last = line.receive();
        while last.as_ref().is_some_and(|frame| frame.0 != BYE) {
            last = line.receive();
        }
        let (_, _, _, why) = last.expect(name);
        assert!(String::from_utf8(why).unwrap().contains("idle"));
        assert_eq!(line.receive(), None);
    }
    assert_eq!(busy.answer(2).unwrap(), float(9.0));
    drop((busy, alive));
    server.finish();
}

/// Sets the soft limit on the open file descriptors of a process and returns the previous limit.
fn limit_descriptors(pid: u32, most: u64) -> u64 {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `prlimit` only writes the old limits to `old`, which is on this stack.
    let got = unsafe { libc::prlimit(pid as i32, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut old) };
    let new = libc::rlimit { rlim_cur: most, rlim_max: old.rlim_max };
    // SAFETY: `prlimit` only reads the new limits from `new`, which is on this stack.
    let set = unsafe { libc::prlimit(pid as i32, libc::RLIMIT_NOFILE, &raw const new, std::ptr::null_mut()) };
    assert_eq!((got, set), (0, 0));
    old.rlim_cur
}

/// Returns true if the server has answered or has closed the connection.
fn has_something_to_read(stream: &UnixStream) -> bool {
    let mut polled = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `poll` gets one struct, which is on this stack, and does not wait.
    unsafe { libc::poll(&raw mut polled, 1, 0) > 0 }
}

#[test]
fn of_descriptors_of_the_server() {
    let server = Server::open(GRANTED);
    let mut served = server.line();
    let now = server.steady_descriptors();
    // With so few descriptors, each step of starting a session fails for some client.
    for more in 0..12 {
        let failures = || server.log().iter().filter(|line| line["event"] == "failed").count();
        let before = failures();
        let old = limit_descriptors(server.pid(), now + more);
        let mut waiting: Vec<_> = (0..4).map(|_| server.connect()).collect();
        for stream in &mut waiting {
            std::io::Write::write_all(stream, PREFACE).unwrap();
        }
        // Failures for these clients do not affect the client that is served.
        assert!(served.serves(more + 1));
        // A client is answered, or its connection is closed because a newer one needs the descriptor, or starting it fails.
        wait_for(
            || (failures() > before || waiting.iter().all(has_something_to_read)).then_some(()),
            || format!("neither served nor failed with {more} descriptors"),
        );
        limit_descriptors(server.pid(), old);
        // The clients are served when there are enough descriptors again, except those whose descriptors newer clients needed.
        for mut stream in waiting {
            let mut answer = [0; 12];
            if std::io::Read::read_exact(&mut stream, &mut answer).is_ok() {
                assert_eq!(answer, ACCEPTED);
                Line::plain(stream).hello();
            }
        }
        server.serves();
        wait_for(
            || (server.folders().len() == 1).then_some(()),
            || format!("folders are left: {:?}", server.folders()),
        );
    }
    drop(served);
    server.finish();
}
