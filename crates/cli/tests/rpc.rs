//! Tests of `anyfn rpc` with a server in a separate process and a client.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyfn::{Ref, registry};
use anyfn_host::rpc::Session;

fn anyfn(words: &[&str]) -> Output {
    // A server that starts although its options are wrong would serve until it is ended.
    let mut command = Command::new("timeout");
    command.arg("60").arg(env!("CARGO_BIN_EXE_anyfn")).args(words).output().expect("there is `timeout`")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the path of the plugin `anyfn-testing`, which contains sample functions. Cargo has built it beside
/// the test program.
fn plugin() -> PathBuf {
    let deps = std::env::current_exe().expect("this program has a path");
    let deps = deps.parent().expect("it is in a folder");
    let candidates = [deps.join("libanyfn_testing.so"), deps.join("../libanyfn_testing.so")];
    candidates.into_iter().find(|path| path.exists()).expect("anyfn-testing is built")
}

/// A server process, which is terminated on drop, even if a test fails.
struct Server {
    process: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(folder: &Path, words: &[&str]) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anyfn"));
    command.args(["rpc", "server", "--port", "0", "--folder"]).arg(folder).args(words);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut line = String::new();
    let output = process.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut line).expect("it says where it listens");
    let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok()).expect(&line);
    Server { process, port }
}

/// Terminates a server with SIGTERM, checks that its exit status is 0, and returns its log.
fn end(mut server: Server) -> String {
    let pid = server.process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("there is `kill`").success());
    assert!(server.process.wait().expect("it ends").success());
    let log = server.process.stderr.take().expect("it is piped");
    std::io::read_to_string(log).expect("it is text")
}

fn connect(port: u16, key: Option<&str>) -> anyfn::Result<Ref<Session>> {
    registry::get("rpc.connect")?.call(("127.0.0.1", port, key, 30.0))?.get::<Ref<Session>>()
}

#[test]
fn a_server_with_a_key() {
    let folder = std::env::temp_dir().join(format!("anyfn-cli-rpc-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let key = text(&anyfn(&["rpc", "key", "alice"]).stdout);
    let file = folder.join("key");
    let mut options = std::fs::File::options();
    let mut written = options.create(true).write(true).truncate(true).mode(0o600).open(&file).expect("a file");
    std::io::Write::write_all(&mut written, key.as_bytes()).expect("it is written");
    let sessions = folder.join("sessions");
    std::fs::create_dir(&sessions).expect("a folder");
    let plugin = plugin();
    let words = ["--key-file", file.to_str().expect("text"), "--load", plugin.to_str().expect("text")];
    let server = serve(&sessions, &[&words[..], &["--allow", "testing.*", "--limit", "seconds=600"]].concat());
    let session = connect(server.port, Some(key.trim())).expect("the key is right");
    let concat = session.get_function("testing.concat").expect("it is granted");
    assert_eq!(concat.call(("a", "b")).expect("it runs").get::<&str>().expect("text"), "ab");
    let refused = session.get_function("ffi.GetGlobalFuncMetadata").expect_err("it is not granted");
    assert_eq!(refused.kind(), "PermissionError");
    assert_eq!(connect(server.port, None).map(drop).expect_err("it has no key").kind(), "PermissionError");
    let log = end(server);
    assert_eq!(concat.call(("a", "b")).expect_err("the server is gone").kind(), "ConnectionError");
    for part in ["\"event\":\"proved\"", "\"key\":\"alice\"", "the server stops", "\"event\":\"stop\""] {
        assert!(log.contains(part), "no {part} in {log}");
    }
    assert!(!log.contains(key.trim().rsplit(':').next().expect("a secret")));
    assert_eq!(std::fs::read_dir(&sessions).expect("it is there").count(), 0);
    std::fs::remove_dir_all(&folder).expect("it can be removed");
}

#[test]
fn a_file_with_a_key() {
    let folder = std::env::temp_dir().join(format!("anyfn-cli-key-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let path = |name: &str| folder.join(name).into_os_string().into_string().expect("text");
    let (file, sessions) = (path("alice.key"), path("sessions"));
    std::fs::create_dir(&sessions).expect("a folder");
    let made = anyfn(&["rpc", "key", "-o", &file, "alice"]);
    assert!(made.status.success() && made.stdout.is_empty() && made.stderr.is_empty(), "{made:?}");
    let metadata = std::fs::metadata(&file).expect("it has been created");
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&metadata) & 0o777, 0o600);
    let key = std::fs::read_to_string(&file).expect("it is text");
    assert!(key.starts_with("alice:") && key.ends_with('\n'), "{key}");
    // A key that may be in use is not lost.
    let again = anyfn(&["rpc", "key", "alice", "-o", &file]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("the file exists"), "{again:?}");
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), key);
    // The server takes the file, and clients may give the key with the end of its line, or the file.
    let server = serve(Path::new(&sessions), &["--key-file", &file]);
    connect(server.port, Some(&key)).expect("the key is right").close();
    let connect = registry::get("rpc.connect").expect("it is registered");
    let none: Option<&str> = None;
    let session = connect.call(("127.0.0.1", server.port, none, 30.0, &*file)).expect("the key is right");
    session.get::<Ref<Session>>().expect("a session").close();
    let wide = path("wide.key");
    std::fs::write(&wide, &key).expect("it is written");
    std::fs::set_permissions(&wide, std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .expect("its owner may");
    for (key, file, kind, expected) in [
        (Some(&*key), &*file, "ValueError", "expected `key` or `key_file`, got both"),
        (None, "/nowhere/key", "FileNotFoundError", "cannot read `/nowhere/key`: No such file"),
        (None, &*wide, "PermissionError", "chmod 600"),
    ] {
        let error = connect.call(("127.0.0.1", server.port, key, 30.0, file)).map(drop).expect_err(expected);
        assert_eq!(error.kind(), kind, "{}", error.message());
        assert!(error.message().contains(expected), "{}", error.message());
    }
    end(server);
    std::fs::remove_dir_all(&folder).expect("it can be removed");
}

#[test]
fn sessions_that_another_program_starts() {
    let folder = std::env::temp_dir().join(format!("anyfn-cli-runner-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let (script, said) = (folder.join("run.sh"), folder.join("out/said"));
    std::fs::write(&script, format!("echo \"$*\" >{}\nexec \"$@\"\n", said.display())).expect("it is written");
    std::fs::create_dir(folder.join("out")).expect("a folder");
    let out = folder.join("out").into_os_string().into_string().expect("text");
    let runner = format!("sh '{}' env MARK=1", script.display());
    let server = serve(&folder, &["--upload", "--runner", &runner, "--writable", &out]);
    let session = connect(server.port, None).expect("no key is needed");
    let half = anyfn::TypedPackedFunc::from_fn(|x: i64| x / 2);
    session.set_function("rpctest.half", half.as_packed().clone(), false).expect("who may upload may do so");
    let refused = session.get_function("rpctest.half").expect_err("it is not granted by that");
    assert_eq!(refused.kind(), "PermissionError");
    let me = std::fs::canonicalize(env!("CARGO_BIN_EXE_anyfn")).expect("it is there");
    let words = std::fs::read_to_string(&said).expect("the script has run");
    assert_eq!(words.trim(), format!("env MARK=1 {} rpc session", me.display()));
    session.close();
    assert!(end(server).contains("\"event\":\"register\""));
    // A server that does not grant uploads.
    let server = serve(&folder, &["--runner", "env"]);
    let session = connect(server.port, None).expect("no key is needed");
    let refused =
        session.set_function("rpctest.half", half.as_packed().clone(), false).expect_err("it is not granted");
    assert_eq!(refused.kind(), "PermissionError");
    assert!(refused.message().contains("`--upload` on the command line"), "{}", refused.message());
    end(server);
    std::fs::remove_dir_all(&folder).expect("it can be removed");
}

#[test]
fn wrong_words() {
    for (words, code, said) in [
        (&["rpc"][..], 2, "followed by"),
        (&["rpc", "server", "--what", "1"], 2, "no option `--what`"),
        (&["rpc", "server", "--port"], 2, "expected a value after `--port`, got nothing"),
        (&["rpc", "server", "--port=70000"], 2, "`--port`: expected a number from 0 to 65535, got `70000`"),
        (&["rpc", "server", "--host="], 2, "a value after `--host`"),
        (&["rpc", "server", "--upload=yes"], 2, "expected no value after `--upload`, got `yes`"),
        (&["rpc", "server", "x"], 2, "`rpc server` does not expect the argument `x`"),
        (&["rpc", "server", "--limit", "x"], 2, "NAME=NUMBER"),
        (&["rpc", "server", "--runner", "no-such-program -x"], 2, "cannot find the program `no-such-program`"),
        (&["rpc", "server", "--runner", "/nowhere/program"], 2, "/nowhere/program"),
        (&["rpc", "server", "--runner", " "], 2, "needs a command"),
        (&["rpc", "server", "--runner", "sh 'a"], 2, "`--runner`: expected a closing quotation mark"),
        (&["rpc", "server", "--keys", "x", "--upload"], 2, "the file specifies"),
        (
            &["rpc", "server", "--limit", "x=1"],
            1,
            "unknown grant `x`: expected one of the limits sessions, seconds, ",
        ),
        (&["rpc", "server", "--host", "0.0.0.0"], 1, "reached from other machines"),
        (&["rpc", "server", "--port", "70000"], 2, "`--port`: expected a number from 0 to 65535, got `70000`"),
        (&["rpc", "server", "--keys", "/nowhere/keys"], 1, "/nowhere/keys"),
        (
            &["rpc", "server", "--port", "99999999999999999999"],
            2,
            "`--port`: expected a number from 0 to 65535",
        ),
        (&["rpc", "server", "--port", "-1"], 2, "`--port`: expected a number from 0 to 65535, got `-1`"),
        (
            &["rpc", "server", "--max-sessions", "0"],
            1,
            "`sessions`: expected a number from 1 to 100000, got `0`",
        ),
        (&["rpc", "server", "--queue", "1e9"], 2, "`--queue`: expected a number from 0 to 100000, got `1e9`"),
        (&["rpc", "server", "--allow", ""], 2, "a value after `--allow`"),
        (&["rpc", "server", "--allow", "a*b"], 1, "`functions`: expected a name"),
        (&["rpc", "server", "--allow", "a b"], 1, "`functions`: expected a name"),
        (&["rpc", "server", "--device", "cuda:x"], 1, "`devices`: expected a device"),
        (&["rpc", "server", "--device", "gpuu"], 1, "`devices`: unknown device `gpuu`"),
        (&["rpc", "server", "--host", ""], 2, "a value after `--host`"),
        (&["rpc", "server", "--log", ""], 2, "a value after `--log`"),
        (&["rpc", "server", "--host", "a", "--host", "b"], 2, "`--host` at most once, got it twice"),
        (&["rpc", "server", "--upload", "--upload"], 2, "`--upload` at most once, got it twice"),
        (
            &["rpc", "server", "--limit", "calls=1", "--limit", "calls=2"],
            2,
            "`--limit calls=NUMBER` at most once",
        ),
        (&["rpc", "server", "--exclusive", "--max-sessions", "3"], 2, "got both"),
        (
            &["rpc", "server", "--limit", "handles=0"],
            1,
            "`handles`: expected a number from 1 to 4294967295, got `0`",
        ),
        (&["rpc", "server", "--limit", "calls=0"], 1, "`calls`: expected a number from 1"),
        (&["rpc", "server", "--limit", "handles=4294967296"], 1, "`handles`: expected a number from 1"),
        (&["rpc", "server", "--limit", "handles=-1"], 2, "NAME=NUMBER, got `handles=-1`"),
        (&["rpc", "server", "--limit", "message_bytes=10"], 1, "`message_bytes`: expected a number from 4096"),
        (&["rpc", "server", "--limit", "sessions=0"], 1, "`sessions`: expected a number from 1"),
        (
            &["rpc", "server", "--limit", "process_bytes=0"],
            1,
            "`process_bytes`: expected a number from 16777216",
        ),
        (&["rpc", "server", "--limit", "cpu_seconds=0"], 1, "`cpu_seconds`: expected a number from 1"),
        (&["rpc", "server", "--limit", "files=3"], 1, "`files`: expected a number from 64"),
        (
            &["rpc", "server", "--limit", "idle_seconds=18446744073709551615"],
            1,
            "`idle_seconds`: expected a number from 0 to 1073741824",
        ),
        (&["rpc", "server", "--keys", "/dev/zero"], 1, "expected a regular file"),
        (&["rpc", "server", "--key-file", "/dev/zero"], 1, "expected a regular file"),
        (&["rpc", "server", "--isolation", "maybe"], 1, "expected `auto`, `required` or `off`, got \"maybe\""),
        // A library that does not load, and a program that does not serve, are errors at the start, not at the first client.
        (
            &["rpc", "server", "--port", "0", "--load", "/dev/zero"],
            1,
            "session processes cannot serve: anyfn rpc: ",
        ),
        (
            &["rpc", "server", "--port", "0", "--load", env!("CARGO_MANIFEST_PATH")],
            1,
            "session processes cannot serve",
        ),
        (
            &["rpc", "server", "--port", "0", "--runner", "false"],
            1,
            "the process ended before it began to serve",
        ),
        (&["rpc", "server", "--port", "0", "--runner", "cat"], 1, "cat: session: No such file"),
        (&["rpc", "key", "a b"], 1, "expected a key name"),
        (&["rpc", "key"], 2, "`rpc key` needs a name"),
        (&["rpc", "key", "a", "b"], 2, "`rpc key` does not expect the argument `b`"),
        (&["rpc", "key", "-o", "f"], 2, "`rpc key` needs a name"),
        (&["rpc", "key", "a", "-o"], 2, "expected a value after `-o`, got nothing"),
        (&["rpc", "key", "-o", "f", "a", "-o", "g"], 2, "expected `-o` at most once, got it twice"),
        (&["rpc", "key", "-p", "a"], 2, "`rpc key` has no option `-p`"),
        (&["rpc", "key", "a", "-o", "/nowhere/key"], 1, "cannot create `/nowhere/key`: No such file"),
        (&["rpc", "key", "a", "-o", "/dev/null"], 1, "cannot create `/dev/null`: the file exists"),
        (&["rpc", "session", "--what"], 1, "`rpc session` has no option `--what`"),
        (&["rpc", "session"], 1, "only be called in processes that a server"),
    ] {
        let output = anyfn(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        assert!(text(&output.stderr).contains(said), "{words:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_library_that_is_broken_later_is_in_the_log() {
    let folder = std::env::temp_dir().join(format!("anyfn-cli-broken-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("sessions")).expect("a folder");
    let library = folder.join("lib.so");
    std::fs::copy(plugin(), &library).expect("it can be copied");
    let words = ["--load", library.to_str().expect("text")];
    let server = serve(&folder.join("sessions"), &words);
    connect(server.port, None).expect("it loads").close();
    std::fs::remove_file(&library).expect("it can be removed");
    std::fs::write(&library, "no library").expect("it is written");
    assert_eq!(connect(server.port, None).map(drop).expect_err("it does not load").kind(), "ConnectionError");
    let log = end(server);
    let line = log.lines().find(|line| line.contains("\"said\"")).expect(&log);
    assert!(line.contains("\"event\":\"end\"") && line.contains("lib.so"), "{line}");
    std::fs::remove_dir_all(&folder).expect("it can be removed");
}

#[test]
fn the_end_of_a_child_process_is_described() {
    let folder = std::env::temp_dir().join(format!("anyfn-cli-crash-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let spawn = |script: String| -> anyfn::Result<Ref<Session>> {
        let command = vec!["sh".to_owned(), "-c".to_owned(), script];
        registry::get("rpc.spawn")?.call((command,))?.get::<Ref<Session>>()
    };
    let file = folder.join("pid");
    let serve = format!("exec '{}' rpc session --spawned", env!("CARGO_BIN_EXE_anyfn"));
    let script = format!("echo its last words >&2; echo $$ >'{}'; {serve}", file.display());
    let session = spawn(script).expect("it serves");
    let library = std::fs::read(plugin()).expect("it is built");
    let digest = session.send_file(library.into(), None).expect("the child may do anything");
    let _library = session.load_file(&digest).expect("it loads");
    let apply = session.get_function("testing.apply").expect("the library registers it");
    let pid = std::fs::read_to_string(&file).expect("the script has written it");
    let crash = anyfn::PackedFunc::new(move |_| {
        let status = Command::new("kill").args(["-ABRT", pid.trim()]).status();
        assert!(status.expect("there is `kill`").success());
        // The signal is pending for a moment, in which the process could still answer.
        let is_running = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        while is_running() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(anyfn::Any::NONE)
    });
    // The call during which the process crashes, and later ones.
    let errors = [
        apply.call((crash,)).map(drop).expect_err("the process has crashed"),
        apply.call(()).map(drop).expect_err("the process has crashed"),
        session.info().map(drop).expect_err("the process has crashed"),
    ];
    for error in errors {
        assert_eq!(error.kind(), "ConnectionError");
        let expected = "(the process was killed by signal 6 (SIGABRT)); its last output:\n  its last words";
        assert!(error.message().ends_with(expected), "{}", error.message());
    }
    // A process that ends before it serves.
    let error = spawn("echo no library >&2; exit 3".into()).map(drop).expect_err("it does not serve");
    assert_eq!(error.kind(), "ConnectionError");
    let expected = "(the process exited with status 3); its last output:\n  no library";
    assert!(error.message().ends_with(expected), "{}", error.message());
    std::fs::remove_dir_all(&folder).expect("it can be removed");
}

/// Runs a session process that inherits a socket as descriptor 3. `sockets` maps the inode number of the
/// socket to the value of the environment variable `ANYFN_RPC_SOCKETS`, which names the sockets that the
/// process may serve; `None` leaves the variable unset.
fn spawned(sockets: impl Fn(u64) -> Option<String>) -> Output {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    let (here, there) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
    let fd = there.as_raw_fd();
    let number = std::fs::metadata(format!("/proc/self/fd/{fd}")).expect("it is open").ino();
    let mut command = Command::new(env!("CARGO_BIN_EXE_anyfn"));
    command.args(["rpc", "session", "--spawned"]).env("ANYFN_RPC_PARENT", std::process::id().to_string());
    command.env("ANYFN_RPC_FOLDER", "/nowhere").stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(sockets) = sockets(number) {
        command.env("ANYFN_RPC_SOCKETS", sockets);
    }
    let prepare = move || {
        // SAFETY: `dup2` takes only numbers.
        let code = unsafe { libc::dup2(fd, 3) };
        if code < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the function makes only one system call between `fork` and `exec`.
    unsafe { command.pre_exec(prepare) };
    let process = command.spawn().expect("the command runs");
    // The client disconnects at once, so a process that serves it ends.
    drop((here, there));
    process.wait_with_output().expect("it ends")
}

#[test]
fn a_session_takes_no_socket_but_the_one_that_it_was_given() {
    let wrong: [fn(u64) -> Option<String>; 3] =
        [|_| None, |_| Some(String::new()), |number| Some((number + 1).to_string())];
    for sockets in wrong {
        let done = spawned(sockets);
        assert!(!done.status.success());
        assert!(
            text(&done.stderr)
                .contains("this function may only be called in processes that `rpc.spawn` starts"),
            "{done:?}"
        );
    }
    // The socket that the variable names is used, and is found closed.
    let done = spawned(|number| Some(number.to_string()));
    assert!(!done.status.success());
    assert!(text(&done.stderr).contains("the peer closed the connection"), "{done:?}");
}
