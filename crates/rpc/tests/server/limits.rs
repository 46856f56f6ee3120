//! Tests that a session which exceeds its limits, hangs, crashes or sends invalid messages does not end other
//! sessions.

use std::path::Path;
use std::time::Duration;

use anyfn_rpc::keys::Limits;
use anyfn_rpc::policy::Policy;
use anyfn_rpc::server::Access;

use crate::rig::{Rig, wait_for};

/// Starts a test server whose sessions have the given limits.
fn limited(limits: Limits) -> Rig {
    Rig::new(|config, _| {
        config.hung = Duration::from_secs(4);
        config.access = Access::Open(Policy::closed(), limits);
    })
}

fn limits() -> Limits {
    Limits { process_bytes: 1 << 30, ..Limits::DEFAULT }
}

#[test]
fn memory() {
    let rig = limited(limits());
    let mut other = rig.client();
    let mut client = rig.client();
    assert_eq!(client.ask("allocate 1000000"), "1000000");
    client.say("allocate 2000000000");
    assert_eq!(client.hear(), None);
    rig.ended("signal 6");
    assert_eq!(other.ask("echo still"), "still");
    rig.finish();
}

#[test]
fn processor_time() {
    let rig = limited(Limits { cpu_seconds: 1, ..limits() });
    let mut client = rig.client();
    client.say("spin");
    let end = rig.ended("more processor time");
    assert!(end["detail"]["cpu_seconds"].as_f64().unwrap() > 0.5);
    rig.finish();
}

#[test]
fn file_size() {
    let rig = limited(Limits { file_bytes: 1 << 20, ..limits() });
    let mut client = rig.client();
    assert_eq!(client.ask("write 1000"), "ok");
    client.say("write 2000000");
    rig.ended("a file larger");
    rig.finish();
}

#[test]
fn time() {
    let rig = limited(Limits { seconds: 1, ..limits() });
    let mut client = rig.client();
    client.say("sleep 100000");
    rig.ended("took longer");
    assert_eq!(client.hear(), None);
    rig.finish();
}

#[test]
fn stopped() {
    let rig = limited(limits());
    let mut client = rig.client();
    client.say(&format!("signal {}", libc::SIGSTOP));
    rig.ended("does not answer");
    assert_eq!(client.hear(), None);
    rig.finish();
}

#[test]
fn killed() {
    let rig = limited(limits());
    let mut client = rig.client();
    let pid = client.ask("pid").parse().unwrap();
    let child: u32 = client.ask("start").parse().unwrap();
    // SAFETY: `kill` takes only numbers.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    rig.ended("signal 9");
    // Processes that the session has started end with it.
    let is_gone = || is_over(child).then_some(());
    wait_for(is_gone, || format!("process {child} is left"));
    rig.remember(child);
    let mut client = rig.client();
    client.say("exit 3");
    rig.ended("status 3");
    rig.finish();
}

/// Returns true if a process has ended, even if its parent has not collected its exit status yet (a zombie).
fn is_over(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.is_empty() || status.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

#[test]
fn what_a_session_started_ends_with_it() {
    let rig = limited(limits());
    let mut client = rig.client();
    let child: u32 = client.ask("start").parse().unwrap();
    assert!(!is_over(child));
    drop(client);
    wait_for(|| is_over(child).then_some(()), || format!("process {child} is left"));
    rig.finish();
}

#[test]
fn liars() {
    let rig = limited(limits());
    for lie in ["lie", "lie {}", "lie {\"ready\": true}", "lie {\"hello\": {\"key\": null}}", "lie []"] {
        let mut client = rig.client();
        let pid = client.ask("pid");
        client.say(lie);
        wait_for(|| (!Path::new(&format!("/proc/{pid}")).exists()).then_some(()), || format!("after `{lie}`"));
    }
    rig.ended("an invalid or unexpected message");
    let mut client = rig.client();
    client.say("silence");
    wait_for(
        || (rig.log().iter().filter(|line| line["event"] == "end").count() == 6).then_some(()),
        || format!("{:#?}", rig.log()),
    );
    rig.finish();
}

#[test]
fn the_log_is_not_flooded() {
    let rig = limited(limits());
    let mut client = rig.client();
    client.ask("audit 5000");
    drop(client);
    rig.ended("closed");
    let lines = rig.log().iter().filter(|line| line["event"] == "session").count();
    assert!((10..=1000).contains(&lines), "{lines}");
    let text = std::fs::read_to_string(rig.root().join("log")).unwrap();
    assert!(!text.contains('\u{1b}'));
    rig.finish();
}
