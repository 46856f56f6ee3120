//! Lists of steps, one list for each command of `./x`. To add a step, add a line here.
//!
//! `needs(path)` skips a step, and reports this, until the path exists. `inputs(paths)` runs a long step only
//! when something below these paths has changed since it last passed; `Step::in_parts` does that for each
//! part of a step. `quick()` makes a step one of those that `./x test --quick` runs.

use crate::c_tests::{self, Mode};
use crate::inputs::{Inputs, Sources};
use crate::packages::Packages;
use crate::portable::Machine;
use crate::process::{Cmd, cargo_cmd, which};
use crate::result::Result;
use crate::runner::{Due, Part, Run, Step};
use crate::{
    board, codegen, compat, cpp_tests, debian, dist, examples, java, javascript, micro, paths, portable,
    python, python_tests, small, source, static_runtime, system_rust, targets, tidy,
};

/// Paths of all Rust sources.
const ALL_RUST: &[&str] = &[
    "crates",
    "compiler",
    "testing",
    "conformance",
    "examples",
    "benches",
    "bindings/python/src",
    "bindings/python/Cargo.toml",
    "bindings/js/src",
    "bindings/js/Cargo.toml",
    "bindings/js/build.rs",
    "bindings/java/src",
    "bindings/java/Cargo.toml",
    "bindings/java/build.rs",
    "xtask",
    "rustfmt.toml",
];

/// Paths outside the packages that some Rust tests use. Each element consists of a string and a
/// path. The path is an input of the tests of a package if the package's sources contain the
/// string.
const BESIDE_RUST: [(&str, &str); 6] = [
    ("bindings/c/include", "bindings/c/include"),
    ("conformance/saved", "conformance/saved"),
    ("examples/kernels", "examples/kernels"),
    ("testing/compiled", "testing/compiled"),
    ("venv-peer", ".x/setup/peer"),
    ("venv-tvm", ".x/setup/tvm"),
];

/// Folders in packages that contain no Rust code.
const NOT_RUST: &[&str] = &[
    "bindings/python/anyfn",
    "bindings/python/tests",
    "bindings/js/lib",
    "bindings/js/node",
    "bindings/js/test",
    "bindings/js/tools",
    "bindings/js/web",
    "bindings/js/prebuilds",
    "bindings/java/annotations",
    "bindings/java/java",
    "bindings/java/test",
];

/// Paths that are inputs of all documentation tests, in addition to the tested packages.
const DOCS: &[&str] = &["README.md", "docs"];

/// Packages that build the library for C programs and the library that the C tests load.
const LIBRARIES: &[&str] = &["anyfn-lib", "anyfn-devices", "anyfn-testing"];

const C_SOURCES: &[&str] = &["bindings/c", "xtask/src/c_tests.rs", CLASSIC_LIBRARY];
const CPP_SOURCES: &[&str] =
    &["bindings/c/include", "bindings/cpp", "xtask/src/cpp_tests.rs", "xtask/src/c_tests.rs"];
const HEADERS: &[&str] = &["bindings/c", "crates/abi", "xtask/src/c_tests.rs", ".x/setup", "README.md", "docs"];

/// Inputs of the check of the public API: the sources of the public items of the crate `anyfn`, and the list
/// with which these items are compared.
const PUBLIC_API: &[&str] = &["crates/abi", "crates/macros", "crates/anyfn", "xtask/public-api", "Cargo.lock"];

/// Paths that, besides packages, are inputs of the steps that build the small library and run the
/// conformance corpus with it.
const SMALL: &[&str] = &[
    "xtask/src/small.rs",
    "xtask/src/c_tests.rs",
    "xtask/src/system_rust.rs",
    "bindings/c",
    "Cargo.toml",
    ".x/setup",
];
const TARGETS: &[&str] = &["xtask/src/targets.rs", "xtask/src/system_rust.rs", "bindings/c", ".x/setup"];

/// Test file that runs the conformance corpus.
const CORPUS_IN_PYTHON: &str = "bindings/python/tests/test_conformance.py";

/// Test files that, like `test_peer*.py`, run in an environment with anyfn, the peer's package and
/// JAX, so that all three are loaded in one process.
const BESIDE_PEER: [&str; 4] =
    ["test_beside.py", "test_dlpack_table.py", "test_producers.py", "test_python_package.py"];

/// Steps of `./x test` and `./x soak` that build the libraries and copy them into the Python package.
pub(crate) const BUILD: &[&str] = &["library", "static runtime", "python package"];

/// Steps of `./x test` and `./x soak` that build the libraries and copy them into the package for Node.js.
pub(crate) const BUILD_JAVASCRIPT: &[&str] = &["library", "javascript package"];

/// Steps of `./x test` that build WebAssembly modules with the runtime.
const WEB_MODULES: &[&str] = &["conformance, webassembly", "javascript package for pages"];

/// Steps whose results the tests of the compiler in pages use.
const IN_PAGES: &[&str] = &[
    "library",
    "python package",
    "javascript package",
    "conformance, webassembly",
    "javascript package for pages",
];

/// Packages that the tests of the package for Node.js load.
const JAVASCRIPT: &[&str] = &["anyfn-js", "anyfn-lib", "anyfn-devices", "anyfn-testing"];

/// Steps of `./x test` and `./x soak` that build the libraries and the Java package.
pub(crate) const BUILD_JAVA: &[&str] = &["library", "java package"];

/// Packages that the tests of the Java package load or run.
const JAVA: &[&str] = &["anyfn-java", "anyfn-lib", "anyfn-devices", "anyfn-testing", "anyfn-cli"];

/// Steps of `./x test` and `./x soak` that build the Python wheel.
pub(crate) const BUILD_WHEEL: &[&str] = &["library", "static runtime", "python package", "python wheel"];

/// Cargo arguments that build all packages except the packages that only tests use.
const RELEASE_BUILD: &str =
    "build --release --workspace --exclude anyfn-xtask --exclude anyfn-hosts --exclude anyfn-hosts-plugin";

/// Folder of tests that run with the peer's Python package on our library.
const PEER_PACKAGE: &str = "testing/peer_package";

/// Folder of a C++ program that uses our library in place of the peer's.
const PEER_CPP: &str = "testing/peer_cpp";

/// Folder of a Cargo package that uses the peer's Rust crate, with our library in place of the peer's.
const PEER_RUST: &str = "testing/peer_rust";

/// Folder of tests that run with Apache TVM on our library.
pub(crate) const PEER_TVM: &str = "testing/peer_tvm";

/// Folder of a library that follows the library convention of TVM 0.8.
const CLASSIC_LIBRARY: &str = "testing/classic";

/// Paths that are inputs of all tests of the library with the peer's name.
const COMPAT: &[&str] = &["xtask/src/compat.rs", "xtask/src/python.rs", "bindings/c/include", ".x/setup"];

/// Cargo arguments that build only the packages that the demonstration uses.
const DEMO_BUILD: &str = "build --profile demo -p anyfn-lib -p anyfn-devices -p anyfn-python -p anyfn-js -p anyfn-java -p anyfn-compiler-lib \
     -p anyfn-testing -p anyfn-demo -p anyfn-example-deploy -p anyfn-example-te --lib --bin deploy --bin dense --bin link";

/// Returns the steps of `./x build`.
pub(crate) fn build() -> Vec<Step> {
    vec![
        Step::new("library", |run| cargo(run, "build --workspace")),
        Step::new("static runtime", static_runtime::build_package)
            .needs_member("crates/static")
            .packages(&["anyfn-static"])
            .inputs(&[
                "crates/static/support",
                "crates/board/support/format.c",
                "xtask/src/static_runtime.rs",
                "Cargo.toml",
            ]),
        Step::new("python package", python::build_package).uses(&["library"]).needs_member("bindings/python"),
        Step::new("javascript package", javascript::build_package)
            .uses(&["library"])
            .needs_member("bindings/js")
            .skip_if(javascript::unavailable),
        Step::new("java package", java::build_package)
            .uses(&["library"])
            .needs_member("bindings/java")
            .skip_if(java::unavailable),
    ]
}

/// Returns the steps of `./x test`. The cheapest come first. Steps of which most use one processor run beside each other.
pub(crate) fn test() -> Vec<Step> {
    let mut steps = vec![
        Step::new("format", |run| cargo(run, "fmt --all --check")).quick(),
        Step::new("tidy", |run| tidy::check_sources(&paths::root(), &|line| run.say(line))).quick(),
        Step::new("generated files", |_| codegen::run(&paths::root(), true)).quick(),
        Step::in_parts("clippy", clippy_parts, clippy).quick(),
        Step::new("public api", |run| cargo(run, "run -q -p anyfn-public-api -- --check"))
            .skip_if(no_nightly)
            .inputs(PUBLIC_API),
    ];
    steps.extend(build().into_iter().map(Step::quick));
    steps.extend([
        Step::new("symbols of the libraries", |run| tidy::check_libraries(&|line| run.say(line)))
            .uses(BUILD)
            .quick(),
        Step::new("libraries of apache-tvm", compiled_libraries).skip_if(no_tvm),
        Step::in_parts("rust tests", rust_test_parts, rust_tests).quick(),
        Step::new("threads in all orders", |run| {
            let dir = paths::target_dir().join("loom");
            let test =
                cargo_cmd("test -p anyfn -p anyfn-core -p anyfn-reflect -p anyfn-runtime --lib orders::");
            run.cmd(test.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", dir))
        })
        .packages(&["anyfn", "anyfn-core", "anyfn-reflect", "anyfn-runtime"]),
        Step::in_parts("rust doc tests", rust_doc_test_parts, |run, due| {
            run.cmd(of_packages(cargo_cmd("test --doc"), &due.parts))
        }),
        Step::new("rust documentation", |run| {
            run.cmd(cargo_cmd("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"))
        })
        .inputs(ALL_RUST),
        Step::in_parts("rust with address sanitizer", rust_asan_parts, rust_asan)
            .skip_if(no_nightly)
            .needs("crates/core/src/lib.rs")
            .beside(),
        Step::new("c headers", c_tests::headers).inputs(HEADERS).quick().beside(),
        Step::new("c headers after the peer's", c_tests::headers_after_peer)
            .skip_if(no_peer)
            .inputs(HEADERS)
            .beside(),
        Step::new("c tests", |run| c_tests::run(run, Mode::Plain))
            .uses(BUILD)
            .skip_if(c_tests::unavailable)
            .packages(LIBRARIES)
            .inputs(C_SOURCES)
            .quick()
            .beside(),
        Step::new("c tests under valgrind", |run| c_tests::run(run, Mode::Valgrind))
            .uses(BUILD)
            .skip_if(c_tests::unavailable)
            .skip_if(no_valgrind)
            .packages(LIBRARIES)
            .inputs(C_SOURCES)
            .beside(),
        Step::new("c tests with address sanitizer", |run| c_tests::run(run, Mode::AddressSanitizer))
            .uses(BUILD)
            .skip_if(c_tests::unavailable)
            .skip_if(c_tests::no_address_sanitizer)
            .packages(LIBRARIES)
            .inputs(C_SOURCES)
            .beside(),
        Step::new("c++ headers", cpp_tests::headers)
            .uses(BUILD)
            .packages(LIBRARIES)
            .inputs(CPP_SOURCES)
            .inputs(&["README.md", "docs"])
            .beside(),
        Step::new("c++ tests", cpp_tests::run).uses(BUILD).packages(LIBRARIES).inputs(CPP_SOURCES).beside(),
        Step::new("c++ plugins of other compilers", cpp_tests::mixed)
            .uses(BUILD)
            .packages(LIBRARIES)
            .inputs(CPP_SOURCES)
            .beside(),
        Step::new("c++ tests with clang", cpp_tests::run_with_clang)
            .uses(BUILD)
            .skip_if(cpp_tests::no_clang)
            .packages(LIBRARIES)
            .inputs(CPP_SOURCES)
            .beside(),
        Step::in_parts(
            "python tests",
            || python_tests::parts(|file| !file.uses_compiler && file.name != python_tests::CORPUS),
            python::test_files,
        )
        .uses(BUILD)
        .needs(python_tests::FOLDER)
        .skip_if(python::unavailable)
        .quick(),
        Step::in_parts(
            "python tests of the compiler",
            || {
                python_tests::parts(|file| {
                    file.uses_compiler && file.name != python_tests::CORPUS && !file.is_for_pages()
                })
            },
            python::test_files,
        )
        .uses(BUILD)
        .needs(python_tests::FOLDER)
        .skip_if(python::unavailable)
        .quick(),
        site(),
        Step::new("benchmark report", |run| python::pytest(run, "benches"))
            .needs("benches/test_report.py")
            .skip_if(python::unavailable)
            .inputs(&["benches", "docs"])
            .quick(),
        Step::in_parts(
            "python tests beside the peer",
            || python_tests::parts(|file| is_beside_peer(&file.name)),
            |run, due| {
                // Wheels of Rust plugins are built without a network, and need crates for other processors as well. If these cannot be
                // downloaded, the tests say so.
                let _ = cargo_cmd("fetch --locked --quiet").output();
                python::test_files_with(run, &paths::peer_python().ok_or("no apache-tvm-ffi")?, due)
            },
        )
        .uses(BUILD)
        .needs(python_tests::FOLDER)
        .skip_if(no_peer),
        Step::new("the peer's python package on our library", |run| {
            let python = paths::peer_python().ok_or("no apache-tvm-ffi")?;
            python::peer_package(run, python, "peer_package", PEER_PACKAGE)
        })
        .uses(BUILD)
        .needs(PEER_PACKAGE)
        .skip_if(no_peer)
        .skip_if(compat::unavailable_here)
        .packages(LIBRARIES)
        .inputs(&[PEER_PACKAGE])
        .inputs(COMPAT),
        Step::new("the peer's Rust crate on our library", |run| {
            python::peer_crate(run, paths::peer_python().ok_or("no apache-tvm-ffi")?, PEER_RUST)
        })
        .uses(BUILD)
        .needs(PEER_RUST)
        .skip_if(no_peer)
        .skip_if(compat::unavailable_here)
        .skip_if(|| python::crates_unavailable(PEER_RUST))
        .packages(LIBRARIES)
        .inputs(&[PEER_RUST])
        .inputs(COMPAT),
        Step::new("the peer's C++ symbols", c_tests::peer_symbols)
            .uses(BUILD)
            .needs(PEER_CPP)
            .skip_if(no_peer)
            .skip_if(compat::unavailable_here)
            .packages(LIBRARIES)
            .inputs(&[PEER_CPP, "xtask/src/c_tests.rs"])
            .inputs(COMPAT),
        Step::new("apache-tvm on our library", |run| {
            python::peer_package(run, paths::tvm_python().ok_or("no apache-tvm")?, "peer_tvm", PEER_TVM)
        })
        .uses(BUILD)
        .needs(PEER_TVM)
        .skip_if(no_tvm)
        .skip_if(compat::unavailable_here)
        .packages(LIBRARIES)
        .inputs(&[PEER_TVM])
        .inputs(COMPAT),
        Step::new("c tests with the library named for TVM 0.8", c_tests::classic_library)
            .uses(BUILD)
            .skip_if(c_tests::unavailable)
            .packages(LIBRARIES)
            .inputs(C_SOURCES)
            .inputs(&["xtask/src/compat.rs"]),
        Step::new("conformance, c", c_tests::conformance)
            .uses(BUILD)
            .needs_member("conformance")
            .packages(&["anyfn-conformance", "anyfn-lib"])
            .inputs(C_SOURCES)
            .quick(),
        Step::new("conformance, c++", cpp_tests::conformance)
            .uses(BUILD)
            .needs_member("conformance")
            .packages(&["anyfn-conformance", "anyfn-lib"])
            .inputs(CPP_SOURCES)
            .inputs(&["conformance/cpp"]),
        Step::new("conformance, javascript", javascript::conformance)
            .uses(BUILD_JAVASCRIPT)
            .needs_member("bindings/js")
            .skip_if(javascript::unavailable)
            .packages(JAVASCRIPT)
            .inputs(javascript::SOURCES)
            .inputs(&["conformance/cases"]),
        Step::new("javascript tests", javascript::tests)
            .uses(BUILD_JAVASCRIPT)
            .needs_member("bindings/js")
            .skip_if(javascript::unavailable)
            .packages(JAVASCRIPT)
            .inputs(javascript::SOURCES),
        Step::new("conformance, java", java::conformance)
            .uses(BUILD_JAVA)
            .needs_member("bindings/java")
            .skip_if(java::unavailable)
            .packages(JAVA)
            .inputs(java::SOURCES)
            .inputs(&["conformance/cases"]),
        Step::new("java tests", java::tests)
            .uses(BUILD_JAVA)
            .needs_member("bindings/java")
            .skip_if(java::unavailable)
            .packages(JAVA)
            .inputs(java::SOURCES),
        Step::new("conformance, the peer's C++", c_tests::peer_conformance)
            .uses(BUILD)
            .needs_member("conformance")
            .skip_if(no_peer)
            .packages(&["anyfn-conformance", "anyfn-lib"])
            .skip_if(compat::unavailable_here)
            .inputs(&["bindings/c", "xtask/src/c_tests.rs", "xtask/src/compat.rs", ".x/setup"]),
        Step::new("conformance, small library", small::conformance)
            .uses(BUILD)
            .needs_member("conformance")
            .skip_if(system_rust::unavailable)
            .packages(&["anyfn-conformance", "anyfn-lib"])
            .inputs(SMALL)
            .beside(),
        Step::new("runtime for 32 bits", targets::check)
            .skip_if(system_rust::unavailable)
            .packages(&["anyfn-reflect", "anyfn-core", "anyfn-protocol"])
            .inputs(TARGETS)
            .beside(),
        Step::new("conformance, 32-bit arm", targets::arm)
            .needs_member("conformance")
            .skip_if(system_rust::unavailable)
            .skip_if(targets::no_arm)
            .packages(&["anyfn-conformance", "anyfn-protocol"])
            .inputs(TARGETS)
            .beside(),
        Step::new("microcontroller, emulated", micro::run)
            .uses(BUILD)
            .needs_member("crates/board")
            .skip_if(system_rust::unavailable)
            .skip_if(micro::unavailable)
            .packages(&["anyfn-board", "anyfn-example-microcontroller"])
            .inputs(TARGETS)
            .inputs(&["xtask/src/micro.rs", "crates/board/support", "examples/microcontroller"])
            .beside(),
        Step::new("conformance, webassembly", targets::web)
            .needs_member("conformance/web")
            .skip_if(system_rust::unavailable)
            .skip_if(targets::no_web)
            .packages(&["anyfn-conformance-web"])
            .inputs(TARGETS)
            .beside(),
        Step::new("javascript package for pages", javascript::build_web)
            .needs_member("crates/web")
            .skip_if(system_rust::unavailable)
            .skip_if(targets::no_web)
            .skip_if(javascript::unavailable)
            .packages(&["anyfn-web"])
            .inputs(TARGETS)
            .inputs(&["bindings/js/lib", "bindings/js/web", "bindings/js/tools", "bindings/js/index.mjs"])
            .beside(),
        Step::new("conformance, javascript on wasm", javascript::wasm_conformance)
            .uses(WEB_MODULES)
            .needs_member("crates/web")
            .skip_if(system_rust::unavailable)
            .skip_if(targets::no_web)
            .skip_if(javascript::unavailable)
            .packages(&["anyfn-conformance-web", "anyfn-web"])
            .inputs(TARGETS)
            .inputs(javascript::SOURCES)
            .inputs(&["conformance/cases", "docs/sizes.md"]),
        Step::new("conformance, javascript in a page", javascript::page_conformance)
            .uses(WEB_MODULES)
            .needs_member("crates/web")
            .skip_if(system_rust::unavailable)
            .skip_if(targets::no_web)
            .skip_if(javascript::unavailable)
            .skip_if(javascript::no_browser)
            .packages(&["anyfn-conformance-web", "anyfn-web"])
            .inputs(TARGETS)
            .inputs(javascript::SOURCES)
            .inputs(&["conformance/cases", "docs/browser.md", "examples/browser"]),
        Step::in_parts(
            "python tests in a page",
            || python_tests::parts(python_tests::TestFile::is_for_pages),
            python::test_files,
        )
        .uses(IN_PAGES)
        .needs_member("crates/web")
        .skip_if(python::unavailable)
        .skip_if(javascript::no_pages),
        Step::in_parts(
            "conformance, python",
            || python_tests::parts(|file| file.name == python_tests::CORPUS),
            python::test_files,
        )
        .uses(BUILD)
        .needs(CORPUS_IN_PYTHON)
        .skip_if(python::unavailable)
        .quick(),
        Step::new("python wheel", |run| python::pack(run, &paths::scratch_dir("wheel")).map(drop))
            .uses(BUILD)
            .skip_if(python::unavailable),
    ]);
    steps.extend(python::VERSIONS.map(|(version, name)| {
        Step::in_parts(
            name,
            move || python_tests::parts(python::files_of_wheel(version)),
            move |run, due| {
                let wheel = python::wheel_in(&paths::scratch_dir("wheel"), portable::HERE.name)?;
                let files = due.parts.iter().map(|file| format!("{}/{file}", python_tests::FOLDER));
                python::test_wheel(run, version, &wheel, &paths::build_dir(), &files.collect::<Vec<_>>())
            },
        )
        .uses(BUILD_WHEEL)
        .skip_if(move || python::version_unavailable(version))
    }));
    steps
}

/// Returns the step that builds the documentation as a site in `target/site`, and checks its links.
fn site() -> Step {
    Step::new("documentation site", |run| {
        let mkdocs = paths::mkdocs().ok_or("no mkdocs")?;
        run.cmd(Cmd::new(mkdocs).words("build --strict --quiet").env("NO_MKDOCS_2_WARNING", "1"))
    })
    .skip_if(|| paths::mkdocs().is_none().then(|| "no mkdocs; `./x docs` installs it".to_owned()))
    .inputs(&["docs", "mkdocs.yml", "bindings/c/include", "bindings/python/anyfn", ".x/setup"])
}

/// Returns the steps of `./x docs`.
pub(crate) fn docs() -> Vec<Step> {
    vec![
        site(),
        Step::new("rust reference", |run| {
            let doc = cargo_cmd("doc --no-deps -p anyfn -p anyfn-host -p anyfn-protocol -p anyfn-rpc");
            run.cmd(doc.env("CARGO_TARGET_DIR", paths::target_dir().join("site-rust")))?;
            let (from, to) =
                (paths::target_dir().join("site-rust/doc"), paths::root().join("target/site/rust"));
            run.cmd(Cmd::new("cp").arg("-RT").arg(from).arg(to))
        })
        .uses(&["documentation site"]),
    ]
}

/// Returns the steps of `./x demo`, with the emulated board if `is_all` is true. The scenarios print to the terminal.
pub(crate) fn demo(is_all: bool) -> Vec<Step> {
    let mut steps = vec![
        Step::new("optimised build", |run| cargo(run, DEMO_BUILD)),
        Step::new("python package", |run| python::copy_libraries(run, &paths::demo_dir()))
            .uses(&["optimised build"])
            .needs_member("bindings/python"),
        Step::new("javascript package", javascript::copy_demo_package)
            .uses(&["optimised build"])
            .needs_member("bindings/js")
            .skip_if(javascript::unavailable),
        Step::new("javascript package for pages", javascript::build_web)
            .needs_member("crates/web")
            .skip_if(javascript::no_pages),
        Step::new("java package", java::build_demo_package)
            .uses(&["optimised build"])
            .needs_member("bindings/java")
            .skip_if(java::unavailable),
        Step::new("c programs", examples::build_c_programs)
            .uses(&["optimised build"])
            .needs_member("crates/lib")
            .needs(examples::C_PROGRAM),
    ];
    if is_all {
        let board = Step::new("command for aarch64", |run| board::build(run, "board"));
        steps.push(board.needs_member("crates/cli").skip_if(board::not_built).skip_if(board::not_emulated));
    }
    steps.push(
        Step::new("scenarios", move |_| examples::demo(is_all))
            .needs_member("bindings/python")
            .uses(if is_all { &SCENARIOS_WITH_BOARD } else { &SCENARIOS_WITH_BOARD[..6] })
            .needs("examples/demo/run.py")
            .skip_if(python::unavailable),
    );
    steps
}

/// Steps whose results the scenarios of the demonstration use. The last step exists only with the
/// emulated board.
const SCENARIOS_WITH_BOARD: [&str; 7] = [
    "optimised build",
    "python package",
    "javascript package",
    "javascript package for pages",
    "java package",
    "c programs",
    "command for aarch64",
];

/// Returns the steps of `./x bench`.
pub(crate) fn bench() -> Vec<Step> {
    vec![
        Step::new("release build", |run| cargo(run, RELEASE_BUILD)),
        Step::new("python package", python::copy_release_package)
            .uses(&["release build"])
            .needs_member("bindings/python"),
        Step::new("javascript package", javascript::copy_release_package)
            .uses(&["release build"])
            .needs_member("bindings/js")
            .skip_if(javascript::unavailable),
        Step::new("java package", java::build_release_package)
            .uses(&["release build"])
            .needs_member("bindings/java")
            .skip_if(java::unavailable),
        Step::new("benchmarks", |_| examples::bench())
            .uses(&["release build", "python package", "java package"])
            .needs_member("bindings/python")
            .needs_member("benches")
            .skip_if(python::unavailable),
    ]
}

/// Returns the steps of `./x bench --sizes`.
pub(crate) fn sizes() -> Vec<Step> {
    vec![Step::new("sizes of the libraries", small::measure).skip_if(system_rust::unavailable)]
}

/// Returns the steps of `./x small`, which builds the smallest library with some features.
pub(crate) fn small(features: &str) -> Vec<Step> {
    let features = features.to_owned();
    vec![Step::new("small library", move |run| small::write(run, &features)).skip_if(system_rust::unavailable)]
}

/// Returns the steps of `./x dist`; if `is_all` is true, with the files for other machines, and with checks that take long.
pub(crate) fn dist(is_all: bool) -> Vec<Step> {
    let mut steps = vec![
        Step::new("library", |run| dist::library(run, &portable::HERE)).needs_member("crates/lib"),
        Step::new("headers", dist::headers),
        Step::new("command", |run| dist::command(run, &portable::HERE)).needs_member("crates/cli"),
        Step::new("python wheel", |run| dist::wheel(run, &portable::HERE))
            .needs("bindings/python/pyproject.toml")
            .skip_if(python::unavailable),
        Step::new("npm package", |run| dist::npm(run, &portable::HERE))
            .needs_member("bindings/js")
            .skip_if(javascript::no_npm),
        Step::new("java package", |run| dist::jar(run, &portable::HERE))
            .needs_member("bindings/java")
            .skip_if(java::unavailable),
    ];
    steps.extend(python::VERSIONS.map(|(version, name)| {
        Step::new(name, move |run| dist::test_wheel(run, version))
            .uses(&["python wheel"])
            .skip_if(python::unavailable)
            .skip_if(move || python::version_unavailable(version))
    }));
    if is_all {
        let aarch64 = |name, action: fn(&Run, &Machine) -> Result<()>| {
            for_aarch64(Step::new(name, move |run| action(run, &portable::AARCH64)))
        };
        steps.extend([
            aarch64("library for aarch64", dist::library),
            aarch64("command for aarch64", dist::command),
            aarch64("python wheel for aarch64", dist::wheel),
            aarch64("npm package for aarch64", dist::npm).uses(&["npm package"]).skip_if(javascript::no_npm),
            aarch64("java package for aarch64", dist::jar).uses(&["java package"]).skip_if(java::unavailable),
        ]);
    }
    steps.extend([
        Step::new("source archive", source::pack).skip_if(source::unavailable),
        Step::new("bill of materials", dist::materials),
        Step::new("checksums", dist::checksums),
    ]);
    if is_all {
        steps.extend([
            Step::new("second build, from the source archive", source::build_again)
                .uses(&["library", "headers", "command", "python wheel", "source archive", "bill of materials"])
                .skip_if(source::unavailable)
                .skip_if(portable::unavailable),
            Step::new("source archive by pip", source::install)
                .uses(&["source archive"])
                .skip_if(source::unavailable),
            Step::new("trial on Debian 11", |run| dist::try_wheel(run, &portable::HERE))
                .uses(&["python wheel"])
                .skip_if(python::unavailable)
                .skip_if(|| debian::unavailable(&portable::HERE)),
        ]);
        let trial = Step::new("trial on Debian 11 for aarch64", |run| dist::try_wheel(run, &portable::AARCH64));
        steps.push(
            for_aarch64(trial)
                .uses(&["python wheel for aarch64"])
                .skip_if(|| debian::unavailable(&portable::AARCH64)),
        );
    }
    steps
}

/// Skips a step where nothing can be built for AArch64 besides what is built for this machine.
fn for_aarch64(step: Step) -> Step {
    step.skip_if(|| portable::AARCH64.is_here().then(|| "this machine is one".into()))
        .skip_if(board::not_built)
        .skip_if(portable::unavailable)
        .skip_if(python::unavailable)
}

fn cargo(run: &Run, words: &str) -> Result<()> {
    run.cmd(cargo_cmd(words))
}

/// Returns true if a test file needs the peer's package. A new file needs no registration if its name begins
/// with `test_peer`.
fn is_beside_peer(file: &str) -> bool {
    file.starts_with("test_peer") || BESIDE_PEER.contains(&file)
}

/// Returns a part for each package. The inputs of a part are the package's folder, the result of `inputs` for
/// the package's name and folder, and the inputs of the package's dependencies.
fn package_parts(inputs: impl Fn(&str, &str) -> Inputs) -> Result<Vec<Part>> {
    let packages = Packages::of_workspace()?;
    let part = |name: &str| -> Result<Part> {
        let folder = packages.folder(name)?;
        let own = inputs(name, folder).paths([folder]);
        Ok(Part::new(name, own.clone().packages([name])).own(own))
    };
    packages.names().map(part).collect()
}

/// Returns the paths outside of the package in `folder` that the tests of this package use.
fn beside_rust(folder: &str) -> Vec<&'static str> {
    let text = Sources::of_project().text(folder);
    BESIDE_RUST.into_iter().filter(|(name, _)| text.contains(name)).map(|(_, path)| path).collect()
}

fn clippy_parts() -> Result<Vec<Part>> {
    package_parts(|_, _| Inputs::default().except(NOT_RUST))
}

/// Runs Clippy on the packages that have changed or whose dependencies have changed. A quick run checks only
/// the packages that have changed.
fn clippy(run: &Run, due: &Due) -> Result<()> {
    if due.parts.is_empty() {
        return run.say("only packages that depend on changed ones are due");
    }
    run.cmd(of_packages(cargo_cmd("clippy"), &due.parts).words("--all-targets -- -D warnings"))
}

/// Returns a part for each package. All files of the project are inputs of the package `anyfn-xtask`, because
/// its tests read them.
fn rust_test_parts() -> Result<Vec<Part>> {
    package_parts(|name, folder| match name {
        "anyfn-xtask" => Inputs::default().paths(["."]),
        _ => Inputs::default().paths(beside_rust(folder)).except(NOT_RUST),
    })
}

/// Runs the tests of the packages that have changed, and of the packages that are built from or tested with
/// changed packages. For packages that have not changed themselves, a quick run runs only the unit tests.
fn rust_tests(run: &Run, due: &Due) -> Result<()> {
    let (runner, all) = match which("cargo-nextest") {
        Some(_) => ("nextest run --no-fail-fast --no-tests=pass", ""),
        // Without `--tests`, Cargo would also run documentation tests.
        None => ("test --no-fail-fast", "--tests"),
    };
    let packages = Packages::of_workspace()?;
    let mut result = Ok(());
    if !due.parts.is_empty() {
        result = run.cmd(of_packages(cargo_cmd(runner).words(all), &due.parts));
    }
    for targets in ["--lib", "--bins"] {
        let dependents = due.dependents.iter().filter(|name| packages.has_unit_tests(name, targets));
        let dependents: Vec<String> = dependents.cloned().collect();
        if !dependents.is_empty() {
            result = result.and(run.cmd(of_packages(cargo_cmd(runner).arg(targets), &dependents)));
        }
    }
    result
}

/// Returns a part for each package that may have documentation tests.
fn rust_doc_test_parts() -> Result<Vec<Part>> {
    let packages = Packages::of_workspace()?;
    let with_library = packages.names().filter(|name| packages.has_library(name));
    Ok(with_library.map(|name| Part::new(name, Inputs::default().packages([name]).paths(DOCS))).collect())
}

/// Returns a part for each of the runtime's packages that are tested with the address sanitizer.
fn rust_asan_parts() -> Result<Vec<Part>> {
    let packages = Packages::of_workspace()?;
    let part = |name: &str| -> Result<Part> {
        let inputs = Inputs::default().packages([name]).paths(beside_rust(packages.folder(name)?));
        Ok(Part::new(name, inputs))
    };
    const CHECKED: [&str; 8] = [
        "anyfn",
        "anyfn-core",
        "anyfn-loader",
        "anyfn-reflect",
        "anyfn-elements",
        "anyfn-runtime",
        "anyfn-bundle",
        "anyfn-doctor",
    ];
    CHECKED.into_iter().map(part).collect()
}

pub(crate) fn no_valgrind() -> Option<String> {
    which("valgrind").is_none().then(|| "no valgrind".into())
}

/// Runs the tests of the runtime with the address sanitizer. The standard library is not instrumented.
fn rust_asan(run: &Run, due: &Due) -> Result<()> {
    let test = cargo_cmd("+nightly test --lib --tests --no-fail-fast --target").arg(HOST);
    run.cmd(
        of_packages(test, &due.parts)
            // Tests request allocations that must fail with an error.
            .env("ASAN_OPTIONS", "allocator_may_return_null=1")
            .env("RUSTFLAGS", "-Zsanitizer=address")
            .env("CARGO_TARGET_DIR", paths::target_dir().join("asan")),
    )
}

/// Adds the names of packages to a Cargo command.
fn of_packages(cargo: Cmd, packages: &[String]) -> Cmd {
    cargo.args(packages.iter().flat_map(|package| ["-p", package.as_str()]))
}

const HOST: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };

/// Compiles, with apache-tvm, the libraries that the tests of compiled code load, and prints the functions that the tests of
/// TVMScript read.
fn compiled_libraries(run: &Run) -> Result<()> {
    let python = paths::tvm_python().ok_or("no apache-tvm")?;
    run.cmd(Cmd::new(&python).arg("testing/compiled/build.py").arg(paths::build_dir().join("compiled")))?;
    run.cmd(
        Cmd::new(&python)
            .arg("testing/compiled/scripts.py")
            .arg("print")
            .arg(paths::build_dir().join("scripts")),
    )
}

/// Returns the reason why apache-tvm cannot compile the libraries for the tests of compiled code, if any. The
/// tests that load these libraries are then skipped for the same reason.
pub(crate) fn no_tvm() -> Option<String> {
    paths::tvm_python().is_none().then(|| "no apache-tvm; `./x setup --peer`".to_owned())
}

/// Returns the reason why comparisons with the peer cannot run, if any.
fn no_peer() -> Option<String> {
    paths::peer_python().is_none().then(|| "no apache-tvm-ffi; `./x setup --peer`".to_owned())
}

/// Returns the reason why the nightly toolchain cannot be used, if any. This function does not invoke the
/// toolchain by name, because rustup would start to download a missing toolchain.
pub(crate) fn no_nightly() -> Option<String> {
    let installed = Cmd::new("rustup").words("toolchain list").output().unwrap_or_default();
    let has = installed.lines().any(|line| line.starts_with("nightly"));
    (!has).then(|| "no nightly Rust toolchain".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that each used step exists and comes before the step that uses its results.
    #[test]
    fn used_steps_come_earlier() {
        for (command, steps) in [
            ("build", build()),
            ("test", test()),
            ("demo", demo(true)),
            ("docs", docs()),
            ("bench", bench()),
            ("dist", dist(true)),
            ("soak", crate::soak::steps()),
        ] {
            for (i, step) in steps.iter().enumerate() {
                for used in step.used_steps() {
                    assert!(
                        steps[..i].iter().any(|earlier| earlier.name == *used),
                        "{command}: no step `{used}` before `{}`",
                        step.name
                    );
                }
            }
        }
    }

    /// Checks that the step `python tests` uses the steps that build the package, so that it never tests an
    /// older build.
    #[test]
    fn python_tests_use_the_build() {
        let steps = test();
        let tests = steps.iter().find(|step| step.name == "python tests").unwrap();
        assert_eq!(tests.used_steps(), BUILD);
    }
}
