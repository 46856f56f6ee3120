//! Tests of `anyfn rpc tracker` with trackers, servers and clients in processes of their own, which are killed.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyfn::{Ref, Result, registry};
use anyfn_host::rpc::Session;
use serde_json::{Value, json};

/// Environment variable that makes `client_process` a client.
const CLIENT: &str = "ANYFN_POOL_TEST_CLIENT";

/// Process that is killed on drop, even if a test fails.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts the command and returns after its first line.
fn start(words: &[&str]) -> std::result::Result<Process, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anyfn"));
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut log = BufReader::new(process.0.stderr.take().unwrap());
    if line.is_empty() {
        let mut said = String::new();
        log.read_to_string(&mut said).unwrap();
        return Err(said);
    }
    // Nobody may fill the pipe.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    Ok(process)
}

/// Tracker with its folder, in which the journal and the keys are.
struct Pool {
    tracker: Option<Process>,
    folder: PathBuf,
    port: u16,
    keys: Value,
}

impl Pool {
    fn new(name: &str) -> Pool {
        let folder = std::env::temp_dir().join(format!("anyfn-pool-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (mut keys, mut private) = (json!({}), json!({}));
        for (user, functions, sessions) in [
            ("alice", json!(["tracker.request", "tracker.release", "tracker.summary"]), 16),
            ("bob", json!(["tracker.*"]), 1),
            ("board", json!(["tracker.sync"]), 16),
        ] {
            let key = registry::get("rpc.make_key").unwrap().call((user,)).unwrap().get::<String>().unwrap();
            private[user] = json!({ "secret": key.split_once(':').unwrap().1, "functions": functions, "sessions": sessions });
            keys[user] = json!(key);
        }
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        };
        write("keys.json", &json!({ "keys": private }).to_string());
        write("board.key", keys["board"].as_str().unwrap());
        write("alice.key", keys["alice"].as_str().unwrap());
        let mut pool = Pool { tracker: None, folder, port: free_port(), keys };
        pool.start_tracker();
        pool
    }

    fn start_tracker(&mut self) {
        let (port, keys) = (self.port.to_string(), self.folder.join("keys.json"));
        let journal = self.folder.join("journal");
        let words = ["rpc", "tracker", "--port", &port, "--keys", keys.to_str().unwrap(), "--journal"];
        self.tracker = Some(start(&[&words[..], &[journal.to_str().unwrap()]].concat()).unwrap());
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn serve(&self, name: &str, kind: &str, more: &[&str]) -> std::result::Result<Process, String> {
        let (address, key) = (self.address(), self.folder.join("board.key"));
        let folder =
            self.folder.join(format!("{name}-{}", std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos()));
        std::fs::create_dir(&folder).unwrap();
        let words = [
            "rpc",
            "server",
            "--port",
            "0",
            "--tracker",
            &address,
            "--name",
            name,
            "--kind",
            kind,
            "--allow",
            "ffi.Shape",
        ];
        let words =
            [&words[..], &["--folder", folder.to_str().unwrap(), "--key-file", key.to_str().unwrap()], more];
        start(&words.concat())
    }

    fn key(&self, user: &str) -> &str {
        self.keys[user].as_str().unwrap()
    }

    fn request(&self, user: &str, kind: &str, options: Value) -> Result<Vec<Ref<Session>>> {
        request(&self.address(), kind, options, self.key(user))
    }

    fn summary(&self) -> Value {
        let connect = registry::get("rpc.connect").unwrap();
        let session =
            connect.call(("127.0.0.1", self.port, self.key("alice"))).unwrap().get::<Ref<Session>>().unwrap();
        let text = session.get_function("tracker.summary").unwrap().call(()).unwrap().get::<String>().unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until all `count` devices are free.
    fn wait_until_free(&self, count: usize, limit: Duration) {
        let begin = Instant::now();
        loop {
            let summary = self.summary();
            let devices = summary["devices"].as_array().unwrap();
            if devices.iter().filter(|device| device["state"] == "free").count() == count {
                return;
            }
            assert!(begin.elapsed() < limit, "a device was lost: {summary}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn client(&self, arguments: &Value) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "client_process", "--nocapture"]).env(CLIENT, arguments.to_string());
        Process(command.stdout(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.tracker = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn request(address: &str, kind: &str, options: Value, key: &str) -> Result<Vec<Ref<Session>>> {
    let request = registry::get("rpc.request")?;
    request.call((address, kind, options.to_string(), key))?.get::<Vec<Ref<Session>>>()
}

fn works(session: &Session) -> Result<()> {
    session.get_function("ffi.Shape")?.call((1, 2)).map(drop)
}

/// Not a test of its own: the body of a client's process. It requests devices until its time is over, and prints a line for each.
#[test]
fn client_process() {
    let Ok(arguments) = std::env::var(CLIENT) else { return };
    let arguments: Value = serde_json::from_str(&arguments).unwrap();
    let text = |name: &str| arguments[name].as_str().unwrap();
    let seconds = |name: &str| Duration::from_secs_f64(arguments[name].as_f64().unwrap());
    let begin = Instant::now();
    while begin.elapsed() < seconds("run") {
        let asked = Instant::now();
        let sessions = request(text("address"), text("kind"), json!({ "timeout": 60 }), text("key"));
        match sessions {
            Ok(sessions) => {
                println!("leased {}", asked.elapsed().as_secs_f64());
                // The server may be killed.
                let _ = works(&sessions[0]);
                std::thread::sleep(seconds("hold"));
                sessions[0].close();
            }
            Err(error) => println!("failed {}: {}", error.kind(), error.message()),
        }
    }
}

#[test]
fn devices_are_leased_and_return() {
    let pool = Pool::new("lease");
    let error = pool.request("alice", "gpu", json!({})).map(drop).unwrap_err();
    assert!(error.kind() == "ValueError" && error.message().contains("no server is registered"), "{error}");
    let _first = pool.serve("first", "gpu", &["--label", "os=linux"]).unwrap();
    let _second = pool.serve("second", "gpu", &[]).unwrap();
    let taken = pool.request("alice", "gpu", json!({ "labels": { "os": "linux" } })).unwrap();
    works(&taken[0]).unwrap();
    let error = taken[0].get_function("ffi.GetGlobalFuncMetadata").map(drop).unwrap_err();
    assert!(error.kind() == "PermissionError", "{error}");
    let late = json!({ "labels": { "os": "linux" }, "timeout": 0.3 });
    let error = pool.request("alice", "gpu", late).map(drop).unwrap_err();
    assert!(error.kind() == "TimeoutError" && error.message().contains("`timeout=`"), "{error}");
    taken[0].close();
    let both = pool.request("alice", "gpu", json!({ "count": 2 })).unwrap();
    both.iter().for_each(|session| works(session).unwrap());
    let states: Vec<Value> =
        pool.summary()["devices"].as_array().unwrap().iter().map(|device| device["user"].clone()).collect();
    assert_eq!(states, ["alice", "alice"]);
    drop(both);
    pool.wait_until_free(2, Duration::from_secs(10));
    for (user, kind, options, error_kind, expected) in [
        ("alice", "phone", json!({}), "ValueError", "no server has the kind `phone`; the kinds are gpu"),
        ("alice", "gpu", json!({ "labels": { "os": "beos" } }), "ValueError", "at most 0 devices"),
        ("alice", "gpu", json!({ "priority": 1 }), "PermissionError", "tracker.priority"),
        ("alice", "gpu", json!({ "what": 1 }), "ValueError", "unknown option `what`"),
        ("alice", "gpu", json!({ "timeout": -1 }), "ValueError", "`timeout`"),
        ("bob", "gpu", json!({ "count": 2 }), "ValueError", "this key may hold 1 leases"),
        ("board", "gpu", json!({}), "PermissionError", "tracker.request"),
    ] {
        let error = pool.request(user, kind, options).map(drop).unwrap_err();
        assert!(error.kind() == error_kind && error.message().contains(expected), "{error}");
    }
    let stranger = registry::get("rpc.make_key").unwrap().call(("alice",)).unwrap().get::<String>().unwrap();
    let error = request(&pool.address(), "gpu", json!({}), &stranger).map(drop).unwrap_err();
    assert_eq!(error.kind(), "PermissionError", "{error}");
    // A second server of the same name does not start, and the first remains.
    let said = pool.serve("first", "gpu", &[]).map(drop).unwrap_err();
    assert!(said.contains("registered already") && said.contains("--name"), "{said}");
    pool.wait_until_free(2, Duration::from_secs(10));
    let key = pool.folder.join("alice.key");
    let top = |words: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_anyfn")).args(["rpc", "top"]).args(words).output().unwrap();
        String::from_utf8(if done.status.success() { done.stdout } else { done.stderr }).unwrap()
    };
    let address = pool.address();
    assert!(top(&["--json", &address]).contains("requires a key"));
    let summary: Value =
        serde_json::from_str(&top(&["--json", "--key-file", key.to_str().unwrap(), &address])).unwrap();
    assert_eq!(summary["devices"], pool.summary()["devices"]);
    let table = top(&["--key-file", key.to_str().unwrap(), &address]);
    for part in ["devices: 2\n  name    kind  state", "\n  first   gpu   free   -", "os=linux", "queue: 0\n"] {
        assert!(table.contains(part), "no {part:?} in {table}");
    }
}

#[test]
fn a_killed_client_returns_its_device() {
    let pool = Pool::new("client");
    let _server = pool.serve("only", "gpu", &[]).unwrap();
    let mut client = pool.client(&json!({
        "address": pool.address(), "kind": "gpu", "key": pool.key("alice"), "run": 60, "hold": 60,
    }));
    let mut lines = BufReader::new(client.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("leased")));
    let error = pool.request("bob", "gpu", json!({ "timeout": 0.2 })).map(drop).unwrap_err();
    assert_eq!(error.kind(), "TimeoutError", "{error}");
    drop(client);
    let begin = Instant::now();
    works(&pool.request("bob", "gpu", json!({ "timeout": 20 })).unwrap()[0]).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn a_killed_server_is_replaced_and_returns() {
    let pool = Pool::new("server");
    let server = pool.serve("only", "gpu", &[]).unwrap();
    let session = pool.request("alice", "gpu", json!({})).unwrap().remove(0);
    drop(server);
    assert_eq!(works(&session).unwrap_err().kind(), "ConnectionError");
    // The kind is still known, so a request waits for the server.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| works(&pool.request("bob", "gpu", json!({ "timeout": 30 }))?[0]));
        std::thread::sleep(Duration::from_millis(500));
        let _server = pool.serve("only", "gpu", &[]).unwrap();
        waiting.join().unwrap().unwrap();
        pool.wait_until_free(1, Duration::from_secs(10));
    });
}

#[test]
fn a_killed_tracker_loses_nothing() {
    let mut pool = Pool::new("tracker");
    let _server = pool.serve("only", "gpu", &[]).unwrap();
    let session = pool.request("alice", "gpu", json!({})).unwrap().remove(0);
    let (address, key) = (pool.address(), pool.key("bob").to_owned());
    let waiting = std::thread::spawn(move || request(&address, "gpu", json!({ "timeout": 60 }), &key));
    let begin = Instant::now();
    while pool.summary()["queue"] == json!([]) {
        assert!(begin.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
    // Drop kills the tracker with SIGKILL. A line that was cut short is in its journal.
    pool.tracker = None;
    works(&session).expect("the session does not need the tracker");
    let mut journal = std::fs::File::options().append(true).open(pool.folder.join("journal")).unwrap();
    journal.write_all(b"{\"end\":\"lea").unwrap();
    drop(journal);
    std::thread::sleep(Duration::from_millis(700));
    pool.start_tracker();
    let device = pool.summary()["devices"][0].clone();
    assert!(device["user"] == "alice" && device["name"] == "only", "{device}");
    std::thread::sleep(Duration::from_secs(2));
    works(&session).expect("the lease is the same");
    assert!(!waiting.is_finished(), "the device was leased twice");
    session.close();
    works(&waiting.join().unwrap().expect("the request was not lost")[0]).unwrap();
    pool.wait_until_free(1, Duration::from_secs(20));
}

#[test]
fn strange_peers_do_not_disturb_the_tracker() {
    let pool = Pool::new("strange");
    let _server = pool.serve("only", "gpu", &[]).unwrap();
    let mut kept = Vec::new();
    for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", b"anyfnRPC\x01\x02\x05alice", &[0xff; 4000]] {
        for _ in 0..30 {
            let mut stream = TcpStream::connect(pool.address()).unwrap();
            let _ = stream.write_all(bytes);
            kept.push(stream);
        }
    }
    let connect = registry::get("rpc.connect").unwrap();
    let flood = connect.call(("127.0.0.1", pool.port, pool.key("bob"))).unwrap().get::<Ref<Session>>().unwrap();
    for text in ["", "{", "[]", "{\"id\":1}", &"[".repeat(100_000)] {
        for name in ["tracker.request", "tracker.sync", "tracker.release"] {
            let call = flood.get_function(name).and_then(|function| function.call((text,)));
            assert!(text == "[]" && name == "tracker.release" || call.unwrap_err().kind() == "ValueError");
        }
    }
    works(&pool.request("alice", "gpu", json!({ "timeout": 20 })).unwrap()[0]).unwrap();
    drop(kept);
    pool.wait_until_free(1, Duration::from_secs(10));
}

#[test]
fn many_clients_while_everything_is_killed() {
    let mut pool = Pool::new("many");
    let (count, run) = (20, 20.0);
    let kind = |at: usize| ["gpu", "board"][at % 2];
    let mut servers: Vec<Process> =
        (0..5).map(|at| pool.serve(&format!("server-{at}"), kind(at), &[]).unwrap()).collect();
    let start_client = |pool: &Pool, at: usize| {
        let mut client = pool.client(&json!({
            "address": pool.address(), "kind": kind(at), "key": pool.key("alice"), "run": run, "hold": 0.02,
        }));
        let output = client.0.stdout.take().unwrap();
        let read = std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(|line| line.ok()).collect::<Vec<String>>()
        });
        (client, read)
    };
    let mut clients: Vec<_> = (0..count).map(|at| start_client(&pool, at)).collect();
    let begin = Instant::now();
    for round in 0.. {
        if begin.elapsed().as_secs_f64() > run - 4.0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(900));
        match round % 3 {
            // The clients from the tenth on are killed and started again; the others must get their devices.
            0 => clients[10 + round % 10] = start_client(&pool, 10 + round % 10),
            1 => {
                let at = round % 5;
                servers.remove(at);
                servers.insert(at, pool.serve(&format!("server-{at}"), kind(at), &[]).unwrap());
            }
            _ => {
                pool.tracker = None;
                pool.start_tracker();
            }
        }
    }
    for (at, (mut client, read)) in clients.into_iter().enumerate() {
        // A client that still waits gets its device or its error.
        assert!(client.0.wait().unwrap().success());
        let lines = read.join().unwrap();
        let leased: Vec<f64> =
            lines.iter().filter_map(|line| line.split_once("leased ")?.1.parse().ok()).collect();
        let failed: Vec<&String> = lines.iter().filter(|line| line.contains("failed ")).collect();
        assert!(failed.is_empty(), "client {at}: {failed:?}");
        let longest = leased.iter().copied().fold(0.0, f64::max);
        println!("client {at}: {} leases, longest wait {longest:.2} s", leased.len());
        assert!(at >= 10 || !leased.is_empty(), "client {at} got no device");
        assert!(longest < 20.0, "client {at} waited {longest} s");
    }
    pool.wait_until_free(5, Duration::from_secs(40));
}

#[test]
fn wrong_words() {
    for (words, code, said) in [
        (&["server", "--kind", "gpu"][..], 2, "`--kind` is an option for servers with `--tracker`"),
        (&["server", "--label", "a=b"], 2, "`--label` is an option for servers with `--tracker`"),
        (&["server", "--tracker", "lab"], 2, "`--tracker`: expected the address of a tracker as HOST:PORT"),
        (&["server", "--tracker", "lab:1"], 2, "`--kind NAME`"),
        (&["server", "--tracker", "lab:1", "--kind", "a b"], 2, "`--kind`: expected 1 to 64 characters"),
        (&["server", "--tracker", "lab:1", "--kind", "a", "--keys", "f"], 2, "omit `--keys`"),
        (&["server", "--label", "a"], 2, "`--label` needs NAME=VALUE, got `a`"),
        (&["server", "--label", "a=b", "--label", "a=c"], 2, "`--label a=VALUE` at most once"),
        (&["tracker", "--port", "70000"], 2, "`--port`: expected a number from 0 to 65535"),
        (&["tracker", "--host", "0.0.0.0", "--port", "0"], 1, "reached from other machines"),
        (&["tracker", "--keys", "a", "--key-file", "b"], 1, "expected `--key-file` or `--keys`, got both"),
        (
            &["tracker", "--port", "0", "--journal", "/nowhere/journal"],
            1,
            "cannot open the journal `/nowhere/journal`",
        ),
        (&["top"], 2, "needs the address of a tracker"),
        (&["top", "--json", "127.0.0.1:1"], 1, "127.0.0.1:1"),
    ] {
        let mut command = Command::new("timeout");
        command.args(["60", env!("CARGO_BIN_EXE_anyfn"), "rpc"]).args(words);
        let done = command.output().unwrap();
        let shown = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(code) && shown.contains(said), "{words:?}: {shown}");
    }
}
