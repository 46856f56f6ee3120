//! What each command of `./x` does: one list of steps per command. To add a step, add a line here.
//!
//! `needs(path)` leaves a step out, and says so, until the path exists. `inputs(paths)` runs a long step only when
//! something below these paths has changed since it last passed.

use std::fs;

use crate::c_tests::{self, Mode};
use crate::process::{Cmd, which};
use crate::runner::{Run, Step};
use crate::{Result, board, codegen, dist, examples, paths, python, tidy};

/// What the implementation behind the C ABI is made of.
const RUNTIME: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];
const RUNTIME_AND_C: &[&str] =
    &[RUNTIME[0], RUNTIME[1], RUNTIME[2], "testing", "bindings/c", "examples", "xtask/src"];
const HEADERS: &[&str] = &["bindings/c", "crates/abi", "xtask/src", ".x/setup", "README.md"];
const ALL_RUST: &[&str] = &[
    "crates",
    "compiler",
    "testing",
    "conformance",
    "examples",
    "benches",
    "bindings/python",
    "xtask",
    "Cargo.toml",
    "Cargo.lock",
    "clippy.toml",
    "rustfmt.toml",
];

/// What decides which items the crate `anyfn` shows.
const PUBLIC_API: &[&str] = &["crates/abi", "crates/macros", "crates/anyfn", "xtask/public-api", "Cargo.lock"];

/// What decides what the Python package does, its tests and the corpus included.
const ALL_PYTHON: &[&str] = &[
    RUNTIME[0],
    RUNTIME[1],
    RUNTIME[2],
    "compiler",
    "testing",
    "docs",
    "conformance/cases",
    "bindings/python",
    "README.md",
    "xtask/src/python.rs",
    ".x/setup",
];

/// Runs the conformance corpus; a step of its own, so the other tests of the package leave it out.
const CORPUS_IN_PYTHON: &str = "bindings/python/tests/test_conformance.py";

const PYTHON_TESTS: &str = "bindings/python/tests";

/// The files `test_peer*.py`, and these: run where both packages can be imported, for what happens when both are.
const BESIDE_PEER: [&str; 2] = ["test_beside.py", "test_dlpack_table.py"];

/// All but what only tests use.
const RELEASE_BUILD: &str =
    "build --release --workspace --exclude anyfn-xtask --exclude anyfn-hosts --exclude anyfn-hosts-plugin";

/// Tests that run with the peer's Python package on our library.
const PEER_PACKAGE: &str = "testing/peer_package";

/// What the demonstration uses and no more: each library and program is optimised as a whole, which takes its time.
const DEMO_BUILD: &str = "build --release -p anyfn-lib -p anyfn-python -p anyfn-compiler-lib -p anyfn-testing -p anyfn-demo \
     -p anyfn-example-deploy -p anyfn-example-te --lib --bin deploy --bin dense";

/// `./x build`
pub(crate) fn build() -> Vec<Step> {
    vec![
        Step::new("library", |run| cargo(run, "build --workspace")),
        Step::new("python package", python::build_package).needs_member("bindings/python"),
    ]
}

/// `./x test`
pub(crate) fn test() -> Vec<Step> {
    let mut steps = build();
    steps.extend([
        Step::new("format", |run| cargo(run, "fmt --all --check")),
        Step::new("clippy", |run| cargo(run, "clippy --workspace --all-targets -- -D warnings")),
        Step::new("generated files", |_| codegen::run(&paths::root(), true)),
        Step::new("public api", |run| cargo(run, "run -q -p anyfn-public-api -- --check"))
            .skip_if(no_nightly)
            .inputs(PUBLIC_API),
        Step::new("tidy", |run| tidy::run(&paths::root(), &|line| run.say(line))),
        Step::new("libraries of apache-tvm", compiled_libraries).skip_if(no_tvm),
        Step::new("rust tests", rust_tests),
        Step::new("worker threads in all orders", |run| {
            let dir = paths::target_dir().join("loom");
            let test = cargo_cmd("test -p anyfn-runtime --lib threads::pool");
            run.cmd(test.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", dir))
        })
        .inputs(&RUNTIME),
        Step::new("rust doc tests", |run| cargo(run, "test --workspace --doc")).inputs(ALL_RUST),
        Step::new("rust documentation", |run| {
            run.cmd(cargo_cmd("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"))
        })
        .inputs(ALL_RUST),
        Step::new("rust with address sanitizer", rust_asan)
            .skip_if(no_nightly)
            .needs("crates/core/src/lib.rs")
            .inputs(&RUNTIME),
        Step::new("c headers", c_tests::headers).inputs(HEADERS),
        Step::new("c headers after the peer's", c_tests::headers_after_peer).skip_if(no_peer).inputs(HEADERS),
        Step::new("c tests", |run| c_tests::run(run, Mode::Plain)).skip_if(c_tests::unavailable),
        Step::new("c tests under valgrind", |run| c_tests::run(run, Mode::Valgrind))
            .skip_if(c_tests::unavailable)
            .skip_if(|| which("valgrind").is_none().then(|| "no valgrind".into()))
            .inputs(RUNTIME_AND_C),
        Step::new("c tests with address sanitizer", |run| c_tests::run(run, Mode::AddressSanitizer))
            .skip_if(c_tests::unavailable)
            .skip_if(c_tests::no_address_sanitizer)
            .inputs(RUNTIME_AND_C),
        Step::new("python tests", |run| python::pytest(run, PYTHON_TESTS, &[CORPUS_IN_PYTHON]))
            .needs(PYTHON_TESTS)
            .skip_if(python::unavailable),
        Step::new("benchmark report", |run| python::pytest(run, "benches", &[]))
            .needs("benches/test_report.py")
            .skip_if(python::unavailable),
        Step::new("python tests beside the peer", |run| {
            python::pytest_with(run, &paths::peer_python().ok_or("no apache-tvm-ffi")?, &tests_beside_peer()?)
        })
        .needs(PYTHON_TESTS)
        .skip_if(no_peer),
        Step::new("the peer's python package on our library", |run| python::peer_package(run, PEER_PACKAGE))
            .needs(PEER_PACKAGE)
            .skip_if(no_peer),
        Step::new("conformance, rust", |run| cargo(run, "test -p anyfn-conformance"))
            .needs_member("conformance"),
        Step::new("conformance, c", c_tests::conformance).needs_member("conformance"),
        Step::new("conformance, the peer's C++", c_tests::peer_conformance)
            .needs_member("conformance")
            .skip_if(no_peer)
            .inputs(RUNTIME_AND_C),
        Step::new("conformance, python", |run| python::pytest(run, CORPUS_IN_PYTHON, &[]))
            .needs(CORPUS_IN_PYTHON)
            .skip_if(python::unavailable),
        Step::new("python wheel", |run| python::pack(run, &paths::scratch_dir("wheel")).map(drop))
            .skip_if(python::unavailable),
    ]);
    steps.extend(python::VERSIONS.map(|(version, name)| {
        Step::new(name, move |run| {
            let wheel = python::wheel_in(&paths::scratch_dir("wheel"))?;
            python::test_wheel(run, version, &wheel, &paths::build_dir(), python::tests_of_wheel(version))
        })
        .skip_if(move || python::version_unavailable(version))
        .inputs(ALL_PYTHON)
    }));
    steps
}

/// `./x demo`; the scenarios print for themselves.
pub(crate) fn demo() -> Vec<Step> {
    vec![
        Step::new("release build", |run| cargo(run, DEMO_BUILD)),
        Step::new("python package", python::copy_release_package).needs_member("bindings/python"),
        Step::new("c programs", examples::build_c_programs)
            .needs_member("crates/lib")
            .needs(examples::C_PROGRAM),
        Step::new("command for aarch64", |run| board::build(run, "board"))
            .needs_member("crates/cli")
            .skip_if(board::not_built)
            .skip_if(board::not_emulated),
        Step::new("scenarios", |_| examples::demo())
            .needs_member("bindings/python")
            .needs("examples/demo/run.py")
            .skip_if(python::unavailable),
    ]
}

/// `./x bench`
pub(crate) fn bench() -> Vec<Step> {
    vec![
        Step::new("release build", |run| cargo(run, RELEASE_BUILD)),
        Step::new("python package", python::copy_release_package).needs_member("bindings/python"),
        Step::new("benchmarks", |_| examples::bench())
            .needs_member("bindings/python")
            .needs_member("benches")
            .skip_if(python::unavailable),
    ]
}

/// `./x dist`
pub(crate) fn dist() -> Vec<Step> {
    let mut steps = vec![
        Step::new("library", dist::library).needs_member("crates/lib"),
        Step::new("headers", dist::headers),
        Step::new("libtvm_ffi.so", |run| dist::compat(run, "libtvm_ffi.so")).needs_member("crates/lib"),
        Step::new("command", dist::command).needs_member("crates/cli"),
        Step::new("command for aarch64", dist::board_command)
            .needs_member("crates/cli")
            .skip_if(|| cfg!(target_arch = "aarch64").then(|| "this machine is one".into()))
            .skip_if(board::not_built),
        Step::new("python wheel", dist::wheel)
            .needs("bindings/python/pyproject.toml")
            .skip_if(python::unavailable),
    ];
    steps.extend(python::VERSIONS.map(|(version, name)| {
        Step::new(name, move |run| dist::test_wheel(run, version))
            .skip_if(python::unavailable)
            .skip_if(move || python::version_unavailable(version))
    }));
    steps
}

/// `./x soak`: runs that take long.
pub(crate) fn soak() -> Vec<Step> {
    let mut steps = build();
    steps.extend([
        Step::new("c soak tests", |run| c_tests::run_one(run, "memory", &[("ANYFN_SOAK", "1")]))
            .skip_if(c_tests::unavailable),
        Step::new("c objects, a million deep", |run| c_tests::run_one(run, "objects", &[("ANYFN_SOAK", "1")]))
            .skip_if(c_tests::unavailable),
        Step::new("a graph a million deep", |run| {
            run.cmd(cargo_cmd("test -p anyfn-reflect --test depth").env("ANYFN_SOAK", "1"))
        }),
        Step::new("loading and unloading on several threads", |run| {
            run.cmd(cargo_cmd("test -p anyfn-core --test module_unload").env("ANYFN_STRESS_SECONDS", "20"))
        }),
        // A minute each; those behind a cable are found by the system's own probes.
        Step::new("clients that vanish", |run| {
            run.cmd(
                cargo_cmd("test -p anyfn-cli --test server boundaries -- --nocapture").env("ANYFN_SOAK", "1"),
            )
        }),
        Step::new("fifty clients of a server", |run| {
            run.cmd(cargo_cmd("test -p anyfn-cli --test server many -- --nocapture").env("ANYFN_SOAK", "1"))
        }),
        // An hour, half an hour, twice a quarter, and five minutes for the others; `ANYFN_FUZZ_SECONDS` sets another time for
        // all. The longest comes first, so that the others fit beside it.
        Step::new("random programs, compiled and interpreted", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "3600".into());
            let fuzz = python::command()?.arg("bindings/python/tests/compiler_fuzz.py");
            run.cmd(fuzz.arg("--seconds").arg(seconds))
        })
        .skip_if(python::unavailable)
        .beside(),
        Step::new("fuzzing the reader of libraries", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "1800".into());
            run.cmd(cargo_cmd("test -p anyfn-core --lib reads_anything").env("ANYFN_FUZZ_SECONDS", seconds))
        })
        .beside(),
        Step::new("fuzzing the reader of saved files", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "900".into());
            run.cmd(
                cargo_cmd("test -p anyfn-reflect --test saved reads_any").env("ANYFN_FUZZ_SECONDS", seconds),
            )
        })
        .beside(),
        Step::new("fuzzing the compiler with nonsense", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "900".into());
            let fuzz = python::command()?.arg("bindings/python/tests/compiler_nonsense.py");
            run.cmd(fuzz.arg("--seconds").arg(seconds))
        })
        .skip_if(python::unavailable)
        .beside(),
        Step::new("fuzzing the reader of carried modules", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "300".into());
            run.cmd(
                cargo_cmd("test -p anyfn-core --lib reads_any_import_tree").env("ANYFN_FUZZ_SECONDS", seconds),
            )
        })
        .beside(),
        Step::new("fuzzing what puts modules into libraries", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "300".into());
            run.cmd(
                cargo_cmd("test -p anyfn-runtime --lib takes_any_library").env("ANYFN_FUZZ_SECONDS", seconds),
            )
        })
        .beside(),
        Step::new("fuzzing remote sessions", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "300".into());
            run.cmd(
                cargo_cmd("test -p anyfn-rpc --test attack whatever_comes").env("ANYFN_FUZZ_SECONDS", seconds),
            )
        })
        .beside(),
        Step::new("fuzzing the server of remote sessions", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "300".into());
            run.cmd(cargo_cmd("test -p anyfn-cli --test server fuzz").env("ANYFN_FUZZ_SECONDS", seconds))
        })
        .beside(),
        Step::new("fuzzing the reader of programs", |run| {
            run.cmd(
                cargo_cmd("test -p anyfn-parser --test round_trip changed_texts").env("ANYFN_FUZZ", "300000"),
            )
        })
        .beside(),
        Step::new("damaged libraries", |run| {
            run.cmd(
                cargo_cmd("test -p anyfn-core --test module_damage random").env("ANYFN_DAMAGE_ROUNDS", "20000"),
            )
        })
        .beside(),
        Step::new("loading and unloading", |run| {
            run.cmd(
                cargo_cmd("test -p anyfn-core --test module_lease leaves_nothing").env("ANYFN_CYCLES", "1000"),
            )
        })
        .beside(),
        Step::new("containers against models", |run| {
            run.cmd(cargo_cmd("test -p anyfn --test containers_model").env("PROPTEST_CASES", "20000"))
        })
        .beside(),
    ]);
    // `./x test` runs all tests with some versions of Python only.
    steps.push(
        Step::new("python wheel", |run| python::pack(run, &paths::scratch_dir("wheel")).map(drop))
            .skip_if(python::unavailable),
    );
    steps.extend(python::VERSIONS.map(|(version, name)| {
        Step::new(name, move |run| {
            let wheel = python::wheel_in(&paths::scratch_dir("wheel"))?;
            python::test_wheel(run, version, &wheel, &paths::build_dir(), python::ALL_TESTS)
        })
        .skip_if(move || python::version_unavailable(version))
    }));
    steps.push(
        Step::new("python soak tests", |run| python::script(run, "bindings/python/tests/soak.py"))
            .needs("bindings/python/tests/soak.py")
            .skip_if(python::unavailable),
    );
    steps
}

/// Cargo, with arguments separated by blanks.
pub(crate) fn cargo_cmd(words: &str) -> Cmd {
    Cmd::new("cargo").words(words)
}

fn cargo(run: &Run, words: &str) -> Result<()> {
    run.cmd(cargo_cmd(words))
}

/// The files of tests that need the peer, by their names, so that none is forgotten.
fn tests_beside_peer() -> Result<Vec<String>> {
    let folder = paths::root().join(PYTHON_TESTS);
    let files = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let names = files.flatten().map(|file| file.file_name().to_string_lossy().into_owned());
    let of_peer = |name: &String| name.starts_with("test_peer") && name.ends_with(".py");
    let mut names: Vec<String> = names.filter(of_peer).collect();
    names.extend(BESIDE_PEER.map(str::to_owned));
    names.sort();
    Ok(names.into_iter().map(|name| format!("{PYTHON_TESTS}/{name}")).collect())
}

fn rust_tests(run: &Run) -> Result<()> {
    if which("cargo-nextest").is_some() {
        cargo(run, "nextest run --workspace --no-fail-fast")
    } else {
        cargo(run, "test --workspace --lib --bins --tests --no-fail-fast")
    }
}

/// The tests of the runtime, compiled to check each access to memory. The standard library is not checked.
fn rust_asan(run: &Run) -> Result<()> {
    run.cmd(
        Cmd::new("cargo")
            .words("+nightly test --target")
            .arg(HOST)
            .words("-p anyfn -p anyfn-core -p anyfn-reflect -p anyfn-runtime --lib --tests --no-fail-fast")
            // What cannot be allocated is an error that tests ask for.
            .env("ASAN_OPTIONS", "allocator_may_return_null=1")
            .env("RUSTFLAGS", "-Zsanitizer=address")
            .env("LSAN_OPTIONS", format!("suppressions={}", paths::root().join("xtask/lsan.supp").display()))
            .env("CARGO_TARGET_DIR", paths::target_dir().join("asan")),
    )
}

const HOST: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };

/// What the tests of compiled code run, compiled on the spot.
fn compiled_libraries(run: &Run) -> Result<()> {
    let python = paths::tvm_python().ok_or("no apache-tvm")?;
    run.cmd(Cmd::new(python).arg("testing/compiled/build.py").arg(paths::build_dir().join("compiled")))
}

/// Why there are no compiled libraries; the tests that run them say so, too.
fn no_tvm() -> Option<String> {
    paths::tvm_python().is_none().then(|| "no apache-tvm; `./x setup --peer`".to_owned())
}

/// Why nothing can be compared with the peer.
fn no_peer() -> Option<String> {
    paths::peer_python().is_none().then(|| "no apache-tvm-ffi; `./x setup --peer`".to_owned())
}

/// A missing toolchain must not be asked for by name: rustup would start to download it.
pub(crate) fn no_nightly() -> Option<String> {
    let installed = Cmd::new("rustup").words("toolchain list").output().unwrap_or_default();
    let has = installed.lines().any(|line| line.starts_with("nightly"));
    (!has).then(|| "no nightly Rust toolchain".to_owned())
}
