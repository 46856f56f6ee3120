//! Tests of hostile uploaded code: its access to the server, to the server's keys and to other sessions, and
//! its termination.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyfn::{Bytes, PackedFunc};

use crate::rig::*;

/// C source of the attacks that uploaded code makes. Each attack has a number, and returns 0 on
/// success and otherwise an error number.
const CODE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct { int32_t type_index; uint32_t padding; int64_t value; } Any;

static int64_t result(long code) { return code < 0 ? errno : 0; }

static int64_t of_parent(const char* name, int flags) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", getppid(), name);
    return result(open(path, flags));
}

static void make_folders(void) {
    char name[32];
    /* If a test fails, an end; and never more than fits. */
    alarm(40);
    for (unsigned long number = 0;; number = (number + 1) % 5000) {
        snprintf(name, sizeof name, "%d-%lu", getpid(), number);
        mkdir(name, 0700);
    }
}

static int64_t attack(int64_t kind) {
    switch (kind) {
        case 0: return result(ptrace(PTRACE_ATTACH, getppid(), 0, 0));
        case 1: return result(ptrace(PTRACE_SEIZE, getppid(), 0, 0));
        case 2: {
            long process = syscall(SYS_pidfd_open, getppid(), 0);
            return process < 0 ? result(process) : result(syscall(SYS_pidfd_getfd, process, 0, 0));
        }
        case 3: return of_parent("mem", O_RDWR);
        case 4: return of_parent("environ", O_RDONLY);
        case 5: {
            char byte = 0;
            struct iovec here = {&byte, 1}, there = {(void*)CODE_ADDRESS, 1};
            return result(process_vm_readv(getppid(), &here, 1, &there, 1, 0));
        }
        case 6: return result(open(KEYS, O_RDONLY));
        case 7: return result(open(KEYS, O_WRONLY));
        case 8: return result(rename(KEYS, "stolen"));
        case 9: return result(link(KEYS, "stolen"));
        case 10: return result(open(LOG, O_RDONLY));
        case 11: return result(truncate(LOG, 0));
        case 12: return result(open(OTHER, O_RDONLY));
        case 13: return result(open(OUTSIDE, O_WRONLY | O_CREAT, 0600));
        case 14: return result(kill(getppid(), SIGSTOP));
        case 15: return result(kill(getppid(), SIGKILL));
        /* Its own business. */
        case 20: return result(open("file", O_RDWR | O_CREAT, 0600));
        case 21: return result(mkdir("folder", 0700)) || result(rename("file", "folder/file"));
        case 22: return result(open("/etc/passwd", O_RDONLY));
        case 23: return result(open("/dev/null", O_RDWR));
        /* Leaves its session and its group twice, and never ends. */
        case 30:
            for (int times = 0; times < 4; ++times) {
                pid_t child = fork();
                if (child == 0) {
                    setsid();
                    if (fork() == 0) make_folders();
                    _exit(0);
                }
                waitpid(child, 0, 0);
            }
            return 0;
        case 40: fprintf(stderr, "secret of the session\n"); return 0;
    }
    return -1;
}

int __tvm_ffi_attack(void* self, const Any* args, int32_t count, Any* out) {
    (void)self;
    (void)count;
    out->type_index = 1;
    out->value = attack(args[0].value);
    return 0;
}
"#;

/// Compiles the attacks for a server into a library and returns the library's content. `other` is
/// the path of a file of another session. Without a C compiler, reports a skipped test and returns
/// `None`.
fn library(server: &Server, other: &Path) -> Option<Vec<u8>> {
    let (source, out) = (server.root.join("attack.c"), server.root.join("attack.so"));
    std::fs::write(&source, CODE).unwrap();
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-DCODE_ADDRESS=65536", "-o"]).arg(&out).arg(&source);
    for (name, path) in [
        ("KEYS", server.root.join("keys")),
        ("LOG", server.root.join("log")),
        ("OTHER", other.into()),
        ("OUTSIDE", server.root.join("outside")),
    ] {
        command.arg(format!("-D{name}=\"{}\"", path.display()));
    }
    match command.status() {
        Ok(status) => assert!(status.success()),
        Err(why) => {
            anyfn_skip::report(&format!("no C compiler: {why}"));
            return None;
        }
    }
    Some(std::fs::read(out).unwrap())
}

fn load(server: &Server, library: &[u8]) -> (anyfn::Ref<anyfn_host::rpc::Session>, PackedFunc) {
    let session = server.session(30.0).unwrap();
    let digest = session.send_file(Bytes::from(library), None).unwrap();
    let attack = session.load_file(&digest).unwrap().get_function("attack").unwrap();
    (session, attack)
}

fn try_it(attack: &PackedFunc, kind: i64) -> i64 {
    attack.call((kind,)).unwrap().get::<i64>().unwrap()
}

fn is_root() -> bool {
    // SAFETY: `geteuid` takes no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Returns true if the server reports that the kernel isolates sessions. Otherwise, reports a skipped test
/// and returns false.
fn is_isolated(server: &Server) -> bool {
    let log = server.log();
    let about = log[0]["detail"]["isolation"].as_str().unwrap();
    if !about.starts_with("landlock") {
        anyfn_skip::report(&format!("no isolation: {about}"));
    }
    about.starts_with("landlock")
}

/// Returns true if the working folder of any process is `folder` or a folder below it.
fn works_in(folder: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| std::fs::read_link(entry.path().join("cwd")).ok())
        .any(|cwd| cwd.starts_with(folder))
}

/// Creates a file in the folder of another session and returns its path.
fn of_other(server: &Server) -> PathBuf {
    let folder = wait_for(|| server.folders().into_iter().next(), || "no session".into());
    std::fs::write(folder.join("secret"), "x").unwrap();
    folder.join("secret")
}

#[test]
fn the_listener_and_its_keys_are_out_of_reach() {
    let server = Server::with_key(GRANTED);
    if !is_isolated(&server) {
        return;
    }
    let line = server.line();
    let other = of_other(&server);
    let Some(library) = library(&server, &other) else { return };
    let log = std::fs::metadata(server.root.join("log")).unwrap().len();
    let (session, attack) = load(&server, &library);
    // Signals are confined since Linux 6.12.
    let about = server.log()[0]["detail"]["isolation"].as_str().unwrap().to_owned();
    let version: u32 = about.rsplit(' ').next().unwrap().parse().unwrap();
    let last = if version >= 6 { 15 } else { 13 };
    for kind in 0..=last {
        // Since Linux 6.13, a user who may monitor the performance of all processes, such as root, may read these variables.
        if kind == 4 && is_root() {
            anyfn_skip::report("attack 4, for root");
            continue;
        }
        let error = try_it(&attack, kind);
        let expected = [libc::EACCES, libc::EPERM, libc::EXDEV];
        assert!(expected.contains(&(error as i32)), "attack {kind} ended with {error}");
    }
    for kind in 20..=23 {
        assert_eq!(try_it(&attack, kind), 0, "attack {kind}");
    }
    assert!(server.root.join("keys").exists() && !server.root.join("outside").exists());
    assert!(std::fs::metadata(server.root.join("log")).unwrap().len() >= log);
    session.close();
    drop((line, session, attack));
    server.finish();
}

/// Tests that some attacks which isolation prevents succeed on a server without isolation, which
/// shows that the other tests make real attacks.
#[test]
fn without_isolation_the_keys_are_within_reach() {
    let server = Server::with_key(&[GRANTED, &["--isolation", "off"]].concat());
    assert_eq!(server.log()[0]["detail"]["isolation"], "off");
    let line = server.line();
    let other = of_other(&server);
    let Some(library) = library(&server, &other) else { return };
    let (session, attack) = load(&server, &library);
    for kind in [6, 10, 12, 13] {
        assert_eq!(try_it(&attack, kind), 0, "attack {kind}");
    }
    // Users other than root cannot access the memory of the server even without isolation.
    if is_root() {
        anyfn_skip::report("memory that is not dumpable, for root, whom nothing but the isolation keeps away");
    } else {
        for kind in 0..=5 {
            assert_ne!(try_it(&attack, kind), 0, "attack {kind}");
        }
    }
    session.close();
    drop((line, session, attack));
    server.finish();
}

#[test]
fn processes_that_leave_their_session_are_ended() {
    let server = Server::with_key(GRANTED);
    let line = server.line();
    let other = of_other(&server);
    let Some(library) = library(&server, &other) else { return };
    drop(line);
    let (session, attack) = load(&server, &library);
    assert_eq!(try_it(&attack, 30), 0);
    session.close();
    drop((session, attack));
    wait_for(
        || server.log().iter().any(|line| line["event"] == "orphans").then_some(()),
        || "no process that has left its session was ended".into(),
    );
    server.finish();
}

#[test]
fn a_server_is_stopped_whatever_its_sessions_do() {
    for signals in [&[libc::SIGTERM][..], &[libc::SIGINT, libc::SIGINT], &[libc::SIGTERM, libc::SIGTERM]] {
        let server = Server::with_key(GRANTED);
        let line = server.line();
        let other = of_other(&server);
        let Some(library) = library(&server, &other) else { return };
        let (session, attack) = load(&server, &library);
        assert_eq!(try_it(&attack, 30), 0);
        let started = Instant::now();
        signals.iter().for_each(|number| signal(server.pid(), *number));
        server.wait_for_end();
        // Processes that have left their session end as well.
        wait_for(|| (!works_in(&server.root)).then_some(()), || "processes of the session are left".into());
        println!("it has stopped after {:?}", started.elapsed());
        drop((line, session, attack));
    }
}

#[test]
fn what_a_session_says_is_not_in_the_log() {
    let server = Server::with_key(GRANTED);
    let line = server.line();
    let other = of_other(&server);
    let Some(library) = library(&server, &other) else { return };
    let (session, attack) = load(&server, &library);
    assert_eq!(try_it(&attack, 40), 0);
    session.close();
    drop((line, session, attack));
    server.ended("closed");
    assert!(!std::fs::read_to_string(server.root.join("log")).unwrap().contains("secret of the session"));
    server.finish();
}
