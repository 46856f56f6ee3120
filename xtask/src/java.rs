//! Builds the Java package, and runs its tests.
//!
//! The sources are in `bindings/java/java`. Only `javac` and `jar` are needed. The results are in `target/java`: the classes of the
//! package and of its tests, and a jar with the native libraries.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Cmd, which};
use crate::result::Result;
use crate::runner::Run;
use crate::{paths, python};

const PACKAGE: &str = "bindings/java";

/// Oldest supported version of Java.
const JAVA_MIN: u32 = 17;

/// Test class that runs the conformance corpus.
const CORPUS: &str = "ConformanceTest";

/// Folder in which Debian and others install JDKs.
const JDKS: &str = "/usr/lib/jvm";

/// Files that determine the results of the tests, besides the libraries.
pub(crate) const SOURCES: &[&str] = &[
    PACKAGE,
    "xtask/src/java.rs",
    "examples/board",
    "examples/kernels",
    "bindings/c/include",
    "README.md",
    "docs/java.md",
    "docs/start/java.md",
    ".x/setup",
];

/// A JDK: its version, and the folder of its programs.
struct Jdk {
    version: u32,
    folder: PathBuf,
}

impl Jdk {
    /// Returns the JDK in a folder that contains `bin/javac`, or `None`.
    fn at(home: &Path) -> Option<Jdk> {
        let folder = home.join("bin");
        let javac = folder.join("javac");
        if !javac.is_file() || !folder.join("jar").is_file() {
            return None;
        }
        let shown = Cmd::new(&javac).arg("-version").output().ok()?;
        let version = shown.trim().trim_start_matches("javac ").split(['.', '-', '+']).next()?.parse().ok()?;
        Some(Jdk { version, folder })
    }

    fn program(&self, name: &str) -> Cmd {
        Cmd::new(self.folder.join(name))
    }
}

/// Returns the JDKs of this machine that are new enough, the oldest first, one of each version.
fn jdks() -> Vec<Jdk> {
    let mut homes: Vec<PathBuf> = std::env::var_os("JAVA_HOME").map(PathBuf::from).into_iter().collect();
    let javac = which("javac").and_then(|javac| fs::canonicalize(javac).ok());
    homes.extend(javac.and_then(|javac| Some(javac.parent()?.parent()?.to_path_buf())));
    homes.extend(fs::read_dir(JDKS).into_iter().flatten().flatten().map(|entry| entry.path()));
    let mut found: Vec<Jdk> = homes.iter().filter_map(|home| Jdk::at(home)).collect();
    found.retain(|jdk| jdk.version >= JAVA_MIN);
    found.sort_by_key(|jdk| jdk.version);
    found.dedup_by_key(|jdk| jdk.version);
    found
}

fn oldest() -> Result<Jdk> {
    Ok(jdks().into_iter().next().ok_or("no JDK")?)
}

/// Returns the reason why Java programs cannot be built, if any.
pub(crate) fn unavailable() -> Option<String> {
    jdks().is_empty().then(|| format!("no JDK {JAVA_MIN} or later"))
}

/// Returns the program `java` of the oldest JDK.
pub(crate) fn java() -> Option<PathBuf> {
    jdks().first().map(|jdk| jdk.folder.join("java"))
}

/// Returns the home folders of the oldest and of the newest JDK.
pub(crate) fn homes() -> Vec<PathBuf> {
    let all = jdks();
    let ends: &[&Jdk] = match &all[..] {
        [] => &[],
        [only] => &[only],
        [oldest, .., newest] => &[oldest, newest],
    };
    ends.iter().filter_map(|jdk| Some(jdk.folder.parent()?.to_path_buf())).collect()
}

/// Returns the folder of what is built.
pub(crate) fn build_dir() -> PathBuf {
    paths::target_dir().join("java")
}

/// Returns the path of the jar in a folder.
pub(crate) fn jar_in(folder: &Path) -> PathBuf {
    folder.join(format!("anyfn-{}.jar", env!("CARGO_PKG_VERSION")))
}

/// Builds the package with the libraries of the test build, and its tests.
pub(crate) fn build_package(run: &Run) -> Result<()> {
    let out = build_dir();
    build(run, &paths::build_dir(), &out)?;
    let tests = out.join("test");
    empty(&tests)?;
    run.cmd(
        oldest()?
            .program("javac")
            .words("--release 17 -Xlint:all -Werror -cp")
            .arg(out.join("classes"))
            .arg("-d")
            .arg(&tests)
            .args(java_files(&paths::root().join(PACKAGE).join("test"))?),
    )
}

/// Builds the package with the libraries of the release build.
pub(crate) fn build_release_package(run: &Run) -> Result<()> {
    build(run, &paths::release_dir(), &build_dir())
}

/// Builds the package with the libraries of the demonstration's build.
pub(crate) fn build_demo_package(run: &Run) -> Result<()> {
    build(run, &paths::demo_dir(), &build_dir())
}

fn empty(folder: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()).into())
}

/// Returns the Java files in a folder and in the folders below it.
fn java_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(java_files(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "java") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Compiles the package, and packs it with the libraries in the folder `from`.
fn build(run: &Run, from: &Path, out: &Path) -> Result<()> {
    let jdk = oldest()?;
    let annotations = annotations(run, &jdk, out)?;
    let classes = out.join("classes");
    empty(&classes)?;
    run.cmd(
        jdk.program("javac")
            .words("--release 17 -Xlint:all -Xdoclint:all/protected -Werror --module-path")
            .arg(&annotations)
            .arg("-d")
            .arg(&classes)
            .args(java_files(&paths::root().join(PACKAGE).join("java"))?),
    )?;
    let packed = out.join("packed");
    empty(&packed)?;
    python::copy_folder(&classes, &packed, &[])?;
    add_libraries(run, from, &packed, cfg!(target_arch = "aarch64"))?;
    pack(run, &jdk, &packed, &jar_in(out))
}

/// Compiles the annotations that the sources of the package use, and returns their folder. Programs do not need them.
fn annotations(run: &Run, jdk: &Jdk, out: &Path) -> Result<PathBuf> {
    let folder = out.join("annotations");
    empty(&folder)?;
    run.cmd(
        jdk.program("javac")
            .words("--release 17 -Xlint:all -Werror -d")
            .arg(&folder)
            .args(java_files(&paths::root().join(PACKAGE).join("annotations"))?),
    )?;
    Ok(folder)
}

/// Copies the libraries in `from` into the folder of a package, without their debug information, and writes their digest.
fn add_libraries(run: &Run, from: &Path, packed: &Path, is_aarch64: bool) -> Result<()> {
    let platform = if is_aarch64 { "linux-aarch64" } else { "linux-x86-64" };
    let folder = packed.join("org/anyfn/native").join(platform);
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for name in ["libanyfn.so", "libanyfn_devices.so", "libanyfn_java.so"] {
        let target = folder.join(name);
        python::replace(run, &from.join(name), &target)?;
        let strip =
            if is_aarch64 && cfg!(not(target_arch = "aarch64")) { "aarch64-linux-gnu-strip" } else { "strip" };
        if which(strip).is_some() {
            run.cmd(Cmd::new(strip).arg("--strip-debug").arg(&target))?;
        }
    }
    run.cmd(
        Cmd::new("sh")
            .args([
                "-c",
                "cat libanyfn.so libanyfn_devices.so libanyfn_java.so | sha256sum | cut -d' ' -f1 > sha256",
            ])
            .in_folder(&folder),
    )
}

/// Packs a folder of classes as a jar.
fn pack(run: &Run, jdk: &Jdk, packed: &Path, jar: &Path) -> Result<()> {
    let pom = packed.join("META-INF/maven/org.anyfn/anyfn/pom.xml");
    fs::create_dir_all(pom.parent().unwrap_or(packed)).map_err(|e| format!("{}: {e}", pom.display()))?;
    fs::write(&pom, pom_text()?).map_err(|e| format!("{}: {e}", pom.display()))?;
    let license = packed.join("META-INF/LICENSE");
    fs::copy(paths::root().join("LICENSE"), &license).map_err(|e| format!("{}: {e}", license.display()))?;
    run.cmd(
        jdk.program("jar")
            .arg("--create")
            .arg("--file")
            .arg(jar)
            .arg("--module-version")
            .arg(env!("CARGO_PKG_VERSION"))
            .arg("-C")
            .arg(packed)
            .arg("."),
    )
}

/// Returns the POM: the template with the version of the workspace.
fn pom_text() -> Result<String> {
    let template = paths::root().join(PACKAGE).join("pom.xml");
    let text = fs::read_to_string(&template).map_err(|e| format!("{}: {e}", template.display()))?;
    Ok(text.replace("@VERSION@", env!("CARGO_PKG_VERSION")))
}

/// Runs the conformance corpus with each JDK.
pub(crate) fn conformance(run: &Run) -> Result<()> {
    jdks().iter().try_for_each(|jdk| test(run, jdk, &[CORPUS.into()]))
}

/// Runs all other tests with the oldest and the newest JDK.
pub(crate) fn tests(run: &Run) -> Result<()> {
    let mut names = Vec::new();
    for file in java_files(&paths::root().join(PACKAGE).join("test"))? {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with("Test") && name != "Test" && name != CORPUS {
            names.push(name);
        }
    }
    let all = jdks();
    for (index, jdk) in all.iter().enumerate() {
        if index == 0 {
            let header = jdk.folder.join("../include/jni.h");
            if let (true, Some(python)) = (header.is_file(), paths::python()) {
                run.cmd(Cmd::new(python).arg(format!("{PACKAGE}/test/jni_indices.py")).arg(header))?;
            }
            test(run, jdk, &names)?;
        } else if index + 1 == all.len() {
            test(run, jdk, &names)?;
        }
    }
    Ok(())
}

/// Runs the tests that make and drop millions of objects.
pub(crate) fn soak(run: &Run) -> Result<()> {
    run.cmd(command(&oldest()?, &["MemoryTest".into(), "ThreadsTest".into()]).env("ANYFN_SOAK", "1"))
}

fn command(jdk: &Jdk, classes: &[String]) -> Cmd {
    let (built, out) = (paths::build_dir(), build_dir());
    jdk.program("java")
        .arg("-cp")
        .arg(format!("{}:{}", out.join("classes").display(), out.join("test").display()))
        .arg("org.anyfn.Runner")
        .args(classes)
        .env("ANYFN_ROOT", paths::root())
        .env("ANYFN_LIB_DIR", &built)
        .env("ANYFN_JAR", jar_in(&out))
        .env("ANYFN_ANNOTATIONS", out.join("annotations"))
        .env("ANYFN_TESTING_LIB", built.join("libanyfn_testing.so"))
}

fn test(run: &Run, jdk: &Jdk, classes: &[String]) -> Result<()> {
    run.say(&format!("JDK {}", jdk.version))?;
    run.cmd(command(jdk, classes))
}

/// Writes the jar with the libraries in the folder `from`, a jar of the sources, one of the documentation, and the POM, to the folder
/// `to`. A jar for another processor is added to the one for this processor, so that one file contains both.
pub(crate) fn dist(run: &Run, from: &Path, to: &Path, is_here: bool, is_aarch64: bool) -> Result<()> {
    let jdk = oldest()?;
    let out = paths::scratch_dir("jar");
    let packed = out.join("packed");
    if is_here {
        empty(&out)?;
        build(run, from, &out)?;
        let sources = paths::root().join(PACKAGE).join("java");
        let named = |ending: &str| to.join(format!("anyfn-{}{ending}", env!("CARGO_PKG_VERSION")));
        run.cmd(
            jdk.program("jar")
                .arg("--create")
                .arg("--file")
                .arg(named("-sources.jar"))
                .arg("-C")
                .arg(&sources)
                .arg("."),
        )?;
        let pages = out.join("javadoc");
        run.cmd(
            jdk.program("javadoc")
                .words("-quiet --release 17 -notimestamp -Xdoclint:all -Werror --module-path")
                .arg(out.join("annotations"))
                .arg("-d")
                .arg(&pages)
                .args(java_files(&sources)?),
        )?;
        run.cmd(
            jdk.program("jar")
                .arg("--create")
                .arg("--file")
                .arg(named("-javadoc.jar"))
                .arg("-C")
                .arg(&pages)
                .arg("."),
        )?;
        fs::write(named(".pom"), pom_text()?).map_err(|e| format!("{}: {e}", named(".pom").display()))?;
    } else {
        add_libraries(run, from, &packed, is_aarch64)?;
    }
    pack(run, &jdk, &packed, &jar_in(to))
}
