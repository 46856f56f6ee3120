//! Lists of steps, one list for each command of `./x`. To add a step, add a line here.
//!
//! `needs(path)` skips a step, and reports that, until the path exists. `inputs(paths)` runs a long step only when
//! something below these paths has changed since it last passed.

use std::fs;

use crate::c_tests::{self, Mode};
use crate::packages::Packages;
use crate::process::{Cmd, which};
use crate::runner::{Run, Step};
use crate::{Result, board, codegen, dist, examples, paths, python, tidy};

/// All sources of Rust code.
const ALL_RUST: &[&str] = &[
    "crates",
    "compiler",
    "testing",
    "conformance",
    "examples",
    "benches",
    "bindings/python/src",
    "bindings/python/Cargo.toml",
    "xtask",
    "rustfmt.toml",
];

/// Paths that Rust tests use in addition to their packages.
const BESIDE_RUST: &[&str] =
    &["bindings/c/include", "conformance/saved", "testing/compiled", "xtask/lsan.supp"];

/// Paths that documentation tests use in addition to their packages.
const DOCS: &[&str] = &["README.md", "docs"];

/// Packages of the library for C programs, and of the library that its tests load.
const LIBRARIES: &[&str] = &["anyfn-lib", "anyfn-testing"];

const C_SOURCES: &[&str] = &["bindings/c", "xtask/src/c_tests.rs"];
const HEADERS: &[&str] = &["bindings/c", "crates/abi", "xtask/src/c_tests.rs", ".x/setup", "README.md", "docs"];

/// Paths that determine the public items of the crate `anyfn`.
const PUBLIC_API: &[&str] = &["crates/abi", "crates/macros", "crates/anyfn", "xtask/public-api", "Cargo.lock"];

/// Packages from which the libraries in the Python package, and the library and the command that its tests use, are built.
const PYTHON_LIBRARIES: &[&str] =
    &["anyfn-python", "anyfn-lib", "anyfn-compiler-lib", "anyfn-testing", "anyfn-cli"];

/// Paths that the tests of the Python package use in addition to [`PYTHON_LIBRARIES`].
const BESIDE_PYTHON: &[&str] = &[
    "bindings/python",
    "bindings/c/include",
    "conformance",
    "docs",
    "examples",
    "testing",
    "README.md",
    "xtask/src/python.rs",
    ".x/setup",
];

/// Test file that runs the conformance corpus. It has its own step, so the step of the other tests excludes it.
const CORPUS_IN_PYTHON: &str = "bindings/python/tests/test_conformance.py";

const PYTHON_TESTS: &str = "bindings/python/tests";

/// Test files that, like `test_peer*.py`, run in an environment with both packages, to test them beside each other.
const BESIDE_PEER: [&str; 2] = ["test_beside.py", "test_dlpack_table.py"];

/// Cargo arguments that build everything except what only tests use.
const RELEASE_BUILD: &str =
    "build --release --workspace --exclude anyfn-xtask --exclude anyfn-hosts --exclude anyfn-hosts-plugin";

/// Folder of tests that run with the peer's Python package on our library.
const PEER_PACKAGE: &str = "testing/peer_package";

/// Cargo arguments that build only what the demonstration uses, since optimising each library and program as a whole takes
/// long.
const DEMO_BUILD: &str = "build --release -p anyfn-lib -p anyfn-python -p anyfn-compiler-lib -p anyfn-testing -p anyfn-demo \
     -p anyfn-example-deploy -p anyfn-example-te --lib --bin deploy --bin dense";

/// Returns the steps of `./x build`.
pub(crate) fn build() -> Vec<Step> {
    vec![
        Step::new("library", |run| cargo(run, "build --workspace")),
        Step::new("python package", python::build_package).needs_member("bindings/python"),
    ]
}

/// Returns the steps of `./x test`.
pub(crate) fn test() -> Vec<Step> {
    let mut steps = build();
    steps.extend([
        Step::new("format", |run| cargo(run, "fmt --all --check")),
        Step::new("clippy", |run| cargo(run, "clippy --workspace --all-targets -- -D warnings"))
            .inputs(ALL_RUST),
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
        .packages(&["anyfn-runtime"]),
        Step::new("rust doc tests", rust_doc_tests),
        Step::new("rust documentation", |run| {
            run.cmd(cargo_cmd("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"))
        })
        .inputs(ALL_RUST),
        Step::new("rust with address sanitizer", rust_asan).skip_if(no_nightly).needs("crates/core/src/lib.rs"),
        Step::new("c headers", c_tests::headers).inputs(HEADERS),
        Step::new("c headers after the peer's", c_tests::headers_after_peer).skip_if(no_peer).inputs(HEADERS),
        Step::new("c tests", |run| c_tests::run(run, Mode::Plain))
            .skip_if(c_tests::unavailable)
            .packages(LIBRARIES)
            .inputs(C_SOURCES),
        Step::new("c tests under valgrind", |run| c_tests::run(run, Mode::Valgrind))
            .skip_if(c_tests::unavailable)
            .skip_if(|| which("valgrind").is_none().then(|| "no valgrind".into()))
            .packages(LIBRARIES)
            .inputs(C_SOURCES),
        Step::new("c tests with address sanitizer", |run| c_tests::run(run, Mode::AddressSanitizer))
            .skip_if(c_tests::unavailable)
            .skip_if(c_tests::no_address_sanitizer)
            .packages(LIBRARIES)
            .inputs(C_SOURCES),
        Step::new("python tests", |run| python::pytest(run, PYTHON_TESTS, &[CORPUS_IN_PYTHON]))
            .needs(PYTHON_TESTS)
            .skip_if(python::unavailable)
            .packages(PYTHON_LIBRARIES)
            .inputs(BESIDE_PYTHON),
        Step::new("benchmark report", |run| python::pytest(run, "benches", &[]))
            .needs("benches/test_report.py")
            .skip_if(python::unavailable)
            .inputs(&["benches", "docs"]),
        Step::new("python tests beside the peer", |run| {
            python::pytest_with(run, &paths::peer_python().ok_or("no apache-tvm-ffi")?, &tests_beside_peer()?)
        })
        .needs(PYTHON_TESTS)
        .skip_if(no_peer)
        .packages(PYTHON_LIBRARIES)
        .inputs(BESIDE_PYTHON),
        Step::new("the peer's python package on our library", |run| python::peer_package(run, PEER_PACKAGE))
            .needs(PEER_PACKAGE)
            .skip_if(no_peer)
            .packages(LIBRARIES)
            .inputs(&[PEER_PACKAGE, "xtask/src/python.rs", ".x/setup"]),
        Step::new("conformance, c", c_tests::conformance)
            .needs_member("conformance")
            .packages(&["anyfn-conformance", "anyfn-lib"])
            .inputs(C_SOURCES),
        Step::new("conformance, the peer's C++", c_tests::peer_conformance)
            .needs_member("conformance")
            .skip_if(no_peer)
            .packages(&["anyfn-conformance", "anyfn-lib"])
            .inputs(&["bindings/c", "xtask/src/c_tests.rs", "xtask/src/dist.rs", ".x/setup"]),
        Step::new("conformance, python", |run| python::pytest(run, CORPUS_IN_PYTHON, &[]))
            .needs(CORPUS_IN_PYTHON)
            .skip_if(python::unavailable)
            .packages(PYTHON_LIBRARIES)
            .inputs(BESIDE_PYTHON),
        Step::new("python wheel", |run| python::pack(run, &paths::scratch_dir("wheel")).map(drop))
            .skip_if(python::unavailable),
    ]);
    steps.extend(python::VERSIONS.map(|(version, name)| {
        Step::new(name, move |run| {
            let wheel = python::wheel_in(&paths::scratch_dir("wheel"))?;
            python::test_wheel(run, version, &wheel, &paths::build_dir(), python::tests_of_wheel(version))
        })
        .skip_if(move || python::version_unavailable(version))
        .packages(PYTHON_LIBRARIES)
        .inputs(BESIDE_PYTHON)
    }));
    steps
}

/// Returns the steps of `./x demo`. The scenarios print to the terminal.
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

/// Returns the steps of `./x bench`.
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

/// Returns the steps of `./x dist`.
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

/// Returns the steps of `./x soak`, which take long.
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
            run.cmd(cargo_cmd("test -p anyfn-loader --test unload").env("ANYFN_STRESS_SECONDS", "20"))
        }),
        // These tests take a minute each. Clients behind a cut cable are found only by the keep-alive probes of the system.
        Step::new("clients that vanish", |run| {
            run.cmd(
                cargo_cmd("test -p anyfn-cli --test server boundaries -- --nocapture").env("ANYFN_SOAK", "1"),
            )
        }),
        Step::new("fifty clients of a server", |run| {
            run.cmd(cargo_cmd("test -p anyfn-cli --test server many -- --nocapture").env("ANYFN_SOAK", "1"))
        }),
        // These run for an hour, half an hour, a quarter of an hour (twice), and five minutes each. `ANYFN_FUZZ_SECONDS` sets
        // another time for all of them. The longest comes first, so that the others run beside it.
        Step::new("random programs, compiled and interpreted", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "3600".into());
            let fuzz = python::command()?.arg("bindings/python/tests/compiler_fuzz.py");
            run.cmd(fuzz.arg("--seconds").arg(seconds))
        })
        .skip_if(python::unavailable)
        .beside(),
        Step::new("fuzzing the reader of libraries", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "1800".into());
            run.cmd(cargo_cmd("test -p anyfn-loader --lib reads_anything").env("ANYFN_FUZZ_SECONDS", seconds))
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
                cargo_cmd("test -p anyfn-loader --lib reads_any_import_tree")
                    .env("ANYFN_FUZZ_SECONDS", seconds),
            )
        })
        .beside(),
        Step::new("fuzzing what puts modules into libraries", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "300".into());
            run.cmd(
                cargo_cmd("test -p anyfn-bundle --lib takes_any_library").env("ANYFN_FUZZ_SECONDS", seconds),
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
            run.cmd(cargo_cmd("test -p anyfn-loader --test damage random").env("ANYFN_DAMAGE_ROUNDS", "20000"))
        })
        .beside(),
        Step::new("loading and unloading", |run| {
            run.cmd(cargo_cmd("test -p anyfn-loader --test lease leaves_nothing").env("ANYFN_CYCLES", "1000"))
        })
        .beside(),
        Step::new("containers against models", |run| {
            run.cmd(cargo_cmd("test -p anyfn --test containers_model").env("PROPTEST_CASES", "20000"))
        })
        .beside(),
    ]);
    // `./x test` does not run all tests with all versions of Python.
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

/// Returns a Cargo command with arguments that are separated by blanks.
pub(crate) fn cargo_cmd(words: &str) -> Cmd {
    Cmd::new("cargo").words(words)
}

fn cargo(run: &Run, words: &str) -> Result<()> {
    run.cmd(cargo_cmd(words))
}

/// Returns the test files that need the peer. They are found by their names, so that none is forgotten.
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

/// Runs the tests of the packages that have changed, or that are built from or tested with something that has changed.
fn rust_tests(run: &Run) -> Result<()> {
    let runner = match which("cargo-nextest") {
        Some(_) => "nextest run --no-fail-fast --no-tests=pass",
        None => "test --lib --bins --tests --no-fail-fast",
    };
    let packages = Packages::of_workspace()?;
    run.parts(packages.names(), BESIDE_RUST, |due| run.cmd(of_packages(cargo_cmd(runner), due)))
}

/// Runs the documentation tests of the packages that have changed, or that are built from something that has changed.
fn rust_doc_tests(run: &Run) -> Result<()> {
    let packages = Packages::of_workspace()?;
    let with_library = packages.names().filter(|name| packages.has_library(name));
    run.parts(with_library, DOCS, |due| run.cmd(of_packages(cargo_cmd("test --doc"), due)))
}

/// Runs the tests of the runtime with the address sanitizer, which does not cover the standard library.
fn rust_asan(run: &Run) -> Result<()> {
    const CHECKED: [&str; 7] = [
        "anyfn",
        "anyfn-core",
        "anyfn-loader",
        "anyfn-reflect",
        "anyfn-runtime",
        "anyfn-bundle",
        "anyfn-doctor",
    ];
    run.parts(CHECKED, BESIDE_RUST, |due| {
        let test = cargo_cmd("+nightly test --lib --tests --no-fail-fast --target").arg(HOST);
        run.cmd(
            of_packages(test, due)
                // Tests request allocations that must fail with an error.
                .env("ASAN_OPTIONS", "allocator_may_return_null=1")
                .env("RUSTFLAGS", "-Zsanitizer=address")
                .env(
                    "LSAN_OPTIONS",
                    format!("suppressions={}", paths::root().join("xtask/lsan.supp").display()),
                )
                .env("CARGO_TARGET_DIR", paths::target_dir().join("asan")),
        )
    })
}

/// Adds the names of packages to a command of Cargo.
fn of_packages(cargo: Cmd, packages: &[&str]) -> Cmd {
    cargo.args(packages.iter().flat_map(|package| ["-p", package]))
}

const HOST: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };

/// Compiles the libraries that the tests of compiled code load.
fn compiled_libraries(run: &Run) -> Result<()> {
    let python = paths::tvm_python().ok_or("no apache-tvm")?;
    run.cmd(Cmd::new(python).arg("testing/compiled/build.py").arg(paths::build_dir().join("compiled")))
}

/// Returns the reason why the libraries cannot be compiled, if any. The tests that load them report it, too.
fn no_tvm() -> Option<String> {
    paths::tvm_python().is_none().then(|| "no apache-tvm; `./x setup --peer`".to_owned())
}

/// Returns the reason why nothing can be compared with the peer, if any.
fn no_peer() -> Option<String> {
    paths::peer_python().is_none().then(|| "no apache-tvm-ffi; `./x setup --peer`".to_owned())
}

/// Returns the reason why the nightly toolchain cannot be used, if any. It must not be invoked by name to find out: rustup
/// would start to download a missing one.
pub(crate) fn no_nightly() -> Option<String> {
    let installed = Cmd::new("rustup").words("toolchain list").output().unwrap_or_default();
    let has = installed.lines().any(|line| line.starts_with("nightly"));
    (!has).then(|| "no nightly Rust toolchain".to_owned())
}
