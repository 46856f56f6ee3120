//! Session processes of the server tests.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use anyfn_rpc::server::{Admission, CLIENT_FD, CONTROL_FD, Control, Turn};
use serde_json::{Map, json};

#[test]
#[ignore = "the other tests start it as a session process"]
fn worker() {
    // SAFETY: the listener has put the client's connection at this number, which no other code in this process uses.
    let client = unsafe { OwnedFd::from_raw_fd(CLIENT_FD) };
    // SAFETY: the listener has put its channel at this number, which no other code in this process uses.
    let control = unsafe { OwnedFd::from_raw_fd(CONTROL_FD) };
    let control = Arc::new(Control::new(control));
    if control.is_trial() {
        return;
    }
    let mut client = BufReader::new(TcpStream::from(client));
    let Some(first) = line(&mut client) else { return };
    let (key, secret) = first.split_once(' ').unwrap_or((&first, ""));
    match control.hello(Some(key).filter(|key| *key != "-")).unwrap() {
        Admission::Granted(_, None) => (),
        Admission::Granted(policy, Some(right)) => {
            if right.to_text() != secret {
                control.audit("denied", Map::new());
                return;
            }
            assert_eq!(policy.key.as_deref(), Some(key));
        }
        Admission::Refused(why) => return say(&mut client, &format!("refused {why}")),
    }
    let mut output = client.get_ref().try_clone().unwrap();
    let queued = |place| {
        writeln!(output, "queued {place}").unwrap();
        Ok(())
    };
    let is_gone = || matches!(client.get_ref().peek(&mut [0]), Ok(0));
    client.get_ref().set_nonblocking(true).unwrap();
    let turn = control.wait(is_gone, queued).unwrap();
    client.get_ref().set_nonblocking(false).unwrap();
    match turn {
        Turn::Go => say(&mut client, "go"),
        Turn::Refused(why) => return say(&mut client, &format!("refused {why}")),
        Turn::Gone => return,
    }
    control.tick(|| false).unwrap();
    while let Some(command) = line(&mut client) {
        let answer = obey(&command, &control);
        say(&mut client, &answer);
    }
}

fn obey(command: &str, control: &Control) -> String {
    let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
    let number = || rest.parse::<usize>().unwrap();
    match name {
        "echo" => rest.into(),
        "pid" => std::process::id().to_string(),
        "folder" => std::env::current_dir().unwrap().display().to_string(),
        "environment" => {
            let all: Vec<_> = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
            all.join(";")
        }
        "descriptors" => {
            let all = std::fs::read_dir("/proc/self/fd").unwrap();
            let mut all: Vec<i32> = all
                .map(|entry| entry.unwrap())
                .filter(|entry| !std::fs::read_link(entry.path()).unwrap_or_default().starts_with("/proc"))
                .map(|entry| entry.file_name().to_str().unwrap().parse().unwrap())
                .collect();
            all.sort_unstable();
            format!("{all:?}")
        }
        "signals" => {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let lines = status.lines().filter(|line| line.starts_with("SigBlk") || line.starts_with("SigIgn"));
            lines.collect::<Vec<_>>().join(" ")
        }
        "limit" => {
            let all = std::fs::read_to_string("/proc/self/limits").unwrap();
            all.lines().find(|line| line.starts_with(rest)).unwrap_or_default().into()
        }
        "write" => {
            std::fs::create_dir_all("a/b").unwrap();
            std::fs::write("a/b/file", vec![1; number()]).unwrap();
            "ok".into()
        }
        "allocate" => {
            let memory = vec![1u8; number()];
            std::hint::black_box(&memory).len().to_string()
        }
        "spin" => loop {
            std::hint::spin_loop();
        },
        "sleep" => {
            std::thread::sleep(std::time::Duration::from_millis(number() as u64));
            "ok".into()
        }
        // The whole process group ends with the session.
        "start" => {
            let child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
            let pid = child.id();
            std::mem::forget(child);
            pid.to_string()
        }
        "signal" => {
            // SAFETY: `raise` takes a number, and no handler of this program runs.
            unsafe { libc::raise(rest.parse().unwrap()) };
            "ok".into()
        }
        "audit" => {
            for at in 0..number() {
                control.audit("load", Map::from_iter([("name".into(), json!(format!("{at}\u{1b}[2J\n")))]));
            }
            "ok".into()
        }
        "lie" => {
            let message = if rest.is_empty() { vec![b'{'; 70_000] } else { rest.as_bytes().to_vec() };
            // SAFETY: `send` reads `len` bytes of `message`, which lives for the call.
            unsafe { libc::send(CONTROL_FD, message.as_ptr().cast(), message.len(), 0) };
            "ok".into()
        }
        "silence" => {
            // SAFETY: `shutdown` takes two numbers; the channel stays open, and is not used again.
            unsafe { libc::shutdown(CONTROL_FD, libc::SHUT_RDWR) };
            "ok".into()
        }
        "exit" => std::process::exit(rest.parse().unwrap()),
        other => format!("there is no `{other}`"),
    }
}

fn line(client: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let size = client.read_line(&mut line).unwrap_or(0);
    (size > 0).then(|| line.trim_end().into())
}

fn say(client: &mut BufReader<TcpStream>, text: &str) {
    let _ = client.get_mut().write_all(format!("{text}\n").as_bytes());
    assert!(client.get_ref().as_raw_fd() >= 3);
}
