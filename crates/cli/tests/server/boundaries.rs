//! Tests of clients that are killed, stopped or cut off, and of session processes that are killed or stopped,
//! at every boundary of a session. A boundary is a point between two steps of the session.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::hand::*;
use crate::rig::*;

/// Runs a session that uses all features. Calls `stop` at each boundary (a point between two steps of the
/// session) with the connection and the boundary's name.
pub(crate) fn script(mut stream: UnixStream, with_key: bool, stop: &mut dyn FnMut(&UnixStream, &str)) {
    let raw = stream.try_clone().unwrap();
    let mut stop = |name: &str| stop(&raw, name);
    stop("connected");
    let first = if with_key { preface_of("alice") } else { PREFACE.to_vec() };
    stream.write_all(&first[..5]).unwrap();
    stop("half a preface");
    stream.write_all(&first[5..]).unwrap();
    stop("a preface");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    stop("answered");
    let mut line = if with_key {
        let mut noise = initiator([7; 32], &[&first[..], &answer].concat());
        let message = exchange(&mut noise);
        stream.write_all(&message[..20]).unwrap();
        stop("half a key exchange");
        stream.write_all(&message[20..]).unwrap();
        stop("a key exchange");
        Line::sealed(stream, noise)
    } else {
        Line::plain(stream)
    };
    stop("the handshake");
    line.hello();
    stop("welcomed");

    // Calls.
    line.send(&ask(1, GLOBAL, &[text("testing.concat")]));
    stop("a look-up");
    line.answer(1).unwrap();
    stop("a look-up answered");
    let concat = line.global(2, "testing.concat");
    let bytes = call(3, 0, 0, concat, &[text("a"), text("b")]);
    line.send(&bytes[..9]);
    stop("half a header");
    line.send(&bytes[9..30]);
    stop("half a call");
    line.send(&bytes[30..]);
    stop("a call");
    assert_eq!(line.answer(3).unwrap(), text("ab"));
    stop("a call answered");
    line.send(&frame(CALL, 1, 4, &[0; 1000]));
    stop("a message in parts");
    line.send(&frame(CALL, 0, 4, b""));
    line.answer(4).unwrap_err();

    // An upload to a tensor.
    let tensor = line.empty(5, 8 << 20);
    stop("a tensor");
    line.send(&ask(6, WRITE, &[int(tensor as i64), int(0), int(300_000)]));
    stop("an announced upload");
    line.send(&data(6, 0, &[1; 100_000]));
    let part = data(6, 100_000, &[1; 200_000]);
    line.send(&part[..50_000]);
    stop("half an upload");
    line.send(&part[50_000..]);
    stop("an upload");
    line.answer(6).unwrap();

    // A library.
    let library = std::fs::read(plugin()).unwrap();
    let digest = digest(&library);
    line.send(&ask(7, PUT, &[text(&digest), int(library.len() as i64)]));
    stop("an announced file");
    let half = library.len() / 2;
    for (at, part) in (0..).step_by(100_000).zip(library.chunks(100_000)) {
        line.send(&data(7, at as u64, part));
        if at <= half && at + 100_000 > half {
            stop("half a file");
        }
    }
    line.answer(7).unwrap();
    stop("a file");
    line.send(&ask(8, LOAD, &[text(&digest)]));
    stop("loading");
    // The server has loaded this library already, and refuses to load it again.
    line.answer(8).unwrap_err();
    stop("loaded");

    // A callback, and a call within it.
    let apply = line.global(9, "testing.apply");
    line.send(&call(10, 0, 0, apply, &[mine(1, 1, "ffi.Function"), int(1)]));
    stop("a call that calls back");
    let callback = loop {
        match line.receive().unwrap() {
            (CALL, _, id, _) => break id,
            (RELEASE, ..) => {}
            other => panic!("{other:?}"),
        }
    };
    stop("called back");
    line.send(&call(11, callback, 1, concat, &[text("a"), text("b")]));
    stop("a call within");
    line.answer(11).unwrap();
    stop("a call within, answered");
    line.send(&frame(RETURN, 0, callback, &int(7)));
    stop("a callback answered");
    assert_eq!(line.answer(10).unwrap(), int(7));

    // A long call that is cancelled, and a call that does not check for cancellation.
    let sleep = line.global(12, "testing.sleep");
    line.send(&call(13, 0, 0, sleep, &[float(600.0), bool(true)]));
    stop("a long call");
    assert!(line.serves(1 << 40));
    line.send(&frame(CANCEL, 0, 13, b""));
    stop("a call cancelled");
    line.answer(13).unwrap_err();
    stop("a call ended");
    line.send(&call(14, 0, 0, sleep, &[float(0.2), bool(false)]));
    stop("a call that does not look");
    line.answer(14).unwrap();

    // A download that is larger than the buffers of the connection.
    line.send(&ask(15, READ, &[int(tensor as i64), int(0), int(8 << 20)]));
    stop("a download");
    for _ in 0..10 {
        assert_eq!(line.receive().unwrap().0, DATA);
    }
    stop("a third of a download");
    while line.receive().unwrap().0 != RETURN {}
    stop("a download at its end");
    line.send(&release(tensor, 1));
    stop("a handle given back");
    line.send(&frame(BYE, 0, 0, b"well"));
    stop("good-bye");
    line.drain();
}

/// Runs as the client process that the other tests start. The client stops at the boundary with the number
/// `RPC_AT` and prints the boundary's name. Once it has read a line of input, it waits until the server
/// closes the connection.
#[test]
#[ignore = "the other tests start it as a client"]
fn client() {
    let word = |name: &str| std::env::var(name).unwrap();
    let (at, with_key) = (word("RPC_AT").parse::<usize>().unwrap(), word("RPC_KEY") == "1");
    let stream = dial(&word("RPC_HOST"), word("RPC_PORT").parse().unwrap());
    let mut count = 0;
    static PASSED: Mutex<String> = Mutex::new(String::new());
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |why| {
        eprintln!("behind the boundary `{}`:", PASSED.lock().unwrap());
        hook(why);
    }));
    script(stream, with_key, &mut |mut raw, name| {
        if count == at {
            println!("\nat {name}");
            let mut line = String::new();
            // The end of the input means that the parent process has ended.
            std::io::stdin().read_line(&mut line).unwrap();
            while !line.is_empty() && raw.read(&mut [0; 65536]).is_ok_and(|count| count > 0) {}
            println!("\nclosed");
            std::process::exit(0);
        }
        count += 1;
        name.clone_into(&mut PASSED.lock().unwrap());
    });
    println!("\nat end");
}

/// A client process that has stopped at a boundary.
pub(crate) struct Client {
    process: Child,
    output: BufReader<ChildStdout>,
    /// Name of the boundary at which the client has stopped.
    pub(crate) boundary: String,
}

impl Client {
    /// Starts a client process that stops at the boundary with the number `at`. If `behind` is not empty, the
    /// client is started through this command. Returns `None` if the session has no boundary with that
    /// number.
    pub(crate) fn start(server: &Server, at: usize, behind: &[&str]) -> Option<Client> {
        let me = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
        let mut words = behind.to_vec();
        words.extend([&*me, "boundaries::client", "--exact", "--ignored", "--nocapture"]);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("RPC_AT", at.to_string()).env("RPC_HOST", &server.host);
        command
            .env("RPC_PORT", server.port.to_string())
            .env("RPC_KEY", if server.with_key { "1" } else { "0" });
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = dies_with_us(&mut command).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut client = Client { process, output, boundary: String::new() };
        client.boundary = client.hear("at ");
        (client.boundary != "end").then_some(client)
    }

    /// Reads output lines until one starts with `beginning`, and returns the rest of that line.
    fn hear(&mut self, beginning: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the client has ended");
            if let Some(rest) = line.trim_end().strip_prefix(beginning) {
                return rest.to_owned();
            }
        }
    }

    /// Lets the client continue, and waits until it reports that the server has closed the connection.
    fn is_closed(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        self.hear("closed");
    }

    pub(crate) fn signal(&self, number: i32) {
        signal(self.process.id(), number);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a client for each boundary, calls `happen` with the client, and checks that the server
/// still serves the next client. Returns all clients.
fn at_each(server: &Server, behind: &[&str], mut happen: impl FnMut(&mut Client)) -> Vec<Client> {
    let mut all = Vec::new();
    while let Some(mut client) = Client::start(server, all.len(), behind) {
        happen(&mut client);
        server.serves();
        all.push(client);
    }
    assert!(all.len() >= 30, "{} boundaries", all.len());
    all
}

fn both(words: &[&str], run: impl Fn(Server)) {
    let words = [GRANTED, words].concat();
    run(Server::open(&words));
    run(Server::with_key(&words));
}

#[test]
fn a_client_that_is_killed() {
    both(&[], |server| {
        let (mut at, mut memory) = (0, 0);
        while let Some(client) = Client::start(&server, at, &[]) {
            client.signal(libc::SIGKILL);
            drop(client);
            server.serves();
            if at == 8 {
                memory = server.memory();
            }
            at += 1;
        }
        assert!(at >= 30, "{at} boundaries");
        server.wait_until_quiet();
        let now = server.memory();
        assert!(now < memory + 4096, "the listener has grown from {memory} to {now} KiB");
        server.finish();
    });
}

/// Maximum time that a session may last after its client is stopped. The longest of the server's time limits
/// that apply is ten seconds, for the handshake. The rest is a margin for a busy machine.
const STOPPED_MAX: Duration = Duration::from_secs(30);

const SHORT: &[&str] = &[
    "--limit",
    "idle_seconds=2",
    "--limit",
    "call_seconds=3",
    "--limit",
    "sessions=100",
    "--max-sessions",
    "100",
];

#[test]
fn a_client_that_is_stopped() {
    both(SHORT, |server| {
        let clients = at_each(&server, &[], |client| client.signal(libc::SIGSTOP));
        let started = Instant::now();
        wait_long_for(
            STOPPED_MAX,
            || server.children().is_empty().then_some(()),
            || format!("{} sessions of stopped clients are left", server.children().len()),
        );
        println!("{} stopped clients are forgotten after {:?}", clients.len(), started.elapsed());
        // When the clients continue, they find the connection closed.
        for mut client in clients {
            client.signal(libc::SIGCONT);
            client.is_closed();
        }
        server.finish();
    });
}

/// Name of the boundary at which a client has sent nothing and therefore has no session process.
const SILENT: &str = "connected";

/// Returns the ids of the session processes that are not in `known`. Waits for such a process, unless the
/// client has sent nothing or has ended its session.
fn new_processes(server: &Server, client: &Client, known: &[u32]) -> Vec<u32> {
    let new = || server.children().into_iter().filter(|pid| !known.contains(pid)).collect::<Vec<_>>();
    if [SILENT, "good-bye"].contains(&&*client.boundary) {
        return new();
    }
    wait_for(|| Some(new()).filter(|new| !new.is_empty()), || format!("no process at `{}`", client.boundary))
}

#[test]
fn a_session_process_that_is_killed() {
    both(&[], |server| {
        drop(at_each(&server, &[], |client| {
            new_processes(&server, client, &[]).into_iter().for_each(|pid| signal(pid, libc::SIGKILL));
            if client.boundary != SILENT {
                client.is_closed();
            }
        }));
        server.finish();
    });
}

#[test]
fn a_session_process_that_is_stopped() {
    let server = Server::with_key(&[GRANTED, &["--limit", "sessions=100", "--max-sessions", "100"]].concat());
    let mut stopped = Vec::new();
    let clients = at_each(&server, &[], |client| {
        let new = new_processes(&server, client, &stopped);
        new.iter().for_each(|pid| signal(*pid, libc::SIGSTOP));
        stopped.extend(new);
    });
    assert!(stopped.len() >= 30, "{}", stopped.len());
    for mut client in clients {
        if client.boundary != SILENT {
            client.is_closed();
        }
    }
    server.ended("does not answer");
    server.finish();
}

/// Returns true if this process has a separate network namespace. Otherwise starts a process with a
/// separate namespace that runs the test `test`, waits until it has ended and returns false.
/// Reports a skipped test if that process cannot be started.
fn in_own_network(test: &str) -> bool {
    if std::env::var_os("RPC_NETWORK").is_some() {
        return true;
    }
    let me = std::env::current_exe().unwrap();
    let own = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--net"]).args(words).env("RPC_NETWORK", "1");
        command
    };
    let may = own(&["sh", "-c", "ip link set lo up && ip link add anyfn0 type veth peer name anyfn1"]).output();
    match may {
        Ok(output) if output.status.success() => (),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            anyfn_skip::report(&format!("no network of its own: {}", why.trim()));
            return false;
        }
        Err(why) => {
            anyfn_skip::report(&format!("no `unshare`: {why}"));
            return false;
        }
    }
    let run = own(&[me.to_str().unwrap(), test, "--exact", "--nocapture"]).status().unwrap();
    assert!(run.success());
    false
}

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {words}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_cable_that_is_cut() {
    if !in_own_network("boundaries::a_cable_that_is_cut") {
        return;
    }
    // A second network namespace at the other end of a virtual cable. It exists as long as this process.
    let mut other = Command::new("unshare")
        .args(["--net", "sh", "-c", "echo there; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let pid = other.id();
    ip("link set lo up");
    ip(&format!("link add anyfn0 type veth peer name anyfn1 netns {pid}"));
    ip("addr add 10.209.0.1/30 dev anyfn0");
    ip("link set anyfn0 up");
    let net = format!("--net=/proc/{pid}/ns/net");
    let there = ["nsenter", &*net];
    let set = |words: &str| {
        let done = Command::new(there[0]).arg(there[1]).arg("ip").args(words.split(' ')).status().unwrap();
        assert!(done.success());
    };
    set("addr add 10.209.0.2/30 dev anyfn1");
    set("link set anyfn1 up");
    // In a soak test, only the keep-alive probes of the system detect the cut.
    let idle = if is_soak() { "idle_seconds=0" } else { "idle_seconds=2" };
    let call = if is_soak() { "call_seconds=0" } else { "call_seconds=3" };
    let words = ["--limit", idle, "--limit", call, "--host", "10.209.0.1"];
    let server = Server::with_key(&[GRANTED, &SHORT[4..], &words].concat());
    let clients = at_each(&server, &there, |_| ());
    set("link set anyfn1 down");
    let started = Instant::now();
    // Clients on the server's end of the cable can still reach it.
    server.serves();
    let most = if is_soak() { Duration::from_secs(75) } else { STOPPED_MAX };
    wait_long_for(
        most,
        || server.children().is_empty().then_some(()),
        || format!("{} sessions are left of clients behind a cut cable", server.children().len()),
    );
    println!("{} clients behind a cut cable are forgotten after {:?}", clients.len(), started.elapsed());
    drop(clients);
    server.finish();
    other.kill().unwrap();
    other.wait().unwrap();
}
