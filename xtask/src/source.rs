//! The source archive: what it contains, and the check that builds from it make the same files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::process::Cmd;
use crate::result::Result;
use crate::runner::Run;
use crate::{paths, planted, python};

/// Settings with which Cargo takes the crates from the archive, and needs no network.
const SETTINGS: &str = "\
# The folder `vendor` contains the crates of Cargo.lock. Remove this file to use those of crates.io.
[source.crates-io]
replace-with = \"vendored\"

[source.vendored]
directory = \"vendor\"
";

/// Name of the folder in the archive.
fn stem() -> String {
    format!("anyfn-{}", env!("CARGO_PKG_VERSION"))
}

fn archive() -> PathBuf {
    paths::root().join("dist").join(stem() + ".tar.gz")
}

fn write(file: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()).into())
}

/// Writes `dist/anyfn-<version>.tar.gz`: the tracked files, the crates on which they depend, and what pip needs to
/// install the archive. The same files make the same archive.
pub(crate) fn pack(run: &Run) -> Result<()> {
    let folder = paths::scratch_dir("source");
    let sources = folder.join(stem());
    planted::copy_files("ls-files --cached", &sources)?;
    let vendor = sources.join("vendor");
    run.cmd(Cmd::new("cargo").words("vendor --quiet --locked --versioned-dirs").arg(&vendor))?;
    let crates = fs::read_dir(&vendor).map_err(|e| format!("{}: {e}", vendor.display()))?;
    crates
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("windows"))
        .try_for_each(|entry| empty(&entry.path()))?;
    fs::create_dir_all(sources.join(".cargo")).map_err(|e| e.to_string())?;
    write(&sources.join(".cargo/config.toml"), SETTINGS)?;
    let project = sources.join("bindings/python/pyproject.toml");
    let project = fs::read_to_string(&project).map_err(|e| format!("{}: {e}", project.display()))?;
    write(&sources.join("pyproject.toml"), of_root(&project)?)?;
    let python = Cmd::new(paths::python().ok_or("no Python environment")?).arg("-c");
    let metadata =
        python.arg("import build; print(build.metadata(), end='')").env("PYTHONDONTWRITEBYTECODE", "1");
    write(&sources.join("PKG-INFO"), metadata.env("PYTHONPATH", sources.join("bindings/python")).output()?)?;
    let tar = Cmd::new("tar")
        .words("--sort=name --owner=0 --group=0 --numeric-owner --format=gnu --mtime=2020-01-01Z");
    let tar = tar.words("--mode=u=rwX,go=rX").args(["-I", "gzip -9n"]).arg("-cf").arg(archive()).arg(stem());
    fs::create_dir_all(paths::root().join("dist")).map_err(|e| e.to_string())?;
    run.cmd(tar.in_folder(&folder))?;
    fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    run.say(&format!("wrote {}", archive().display()))
}

/// Returns the settings of the Python package in `bindings/python` for the root of the archive.
fn of_root(project: &str) -> Result<String> {
    let (path, in_archive) = ("backend-path = [\".\"]", "backend-path = [\"bindings/python\"]");
    if !project.contains(path) {
        return Err(format!("bindings/python/pyproject.toml has no `{path}`").into());
    }
    Ok(project.replace(path, in_archive))
}

/// Removes the sources of a crate that is used on Windows only. Cargo reads its `Cargo.toml`, because `Cargo.lock` lists the
/// crate, and checks that a file exists, but never compiles it on other systems.
fn empty(krate: &Path) -> Result<()> {
    let (sums, manifest) = (krate.join(".cargo-checksum.json"), krate.join("Cargo.toml"));
    let read = |file: &Path| fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()));
    let (sums_text, manifest_text) = (read(&sums)?, read(&manifest)?);
    let mut value: Value = serde_json::from_str(&sums_text).map_err(|e| format!("{}: {e}", sums.display()))?;
    value["files"] = json!({});
    fs::remove_dir_all(krate).map_err(|e| format!("{}: {e}", krate.display()))?;
    fs::create_dir_all(krate.join("src")).map_err(|e| format!("{}: {e}", krate.display()))?;
    write(&krate.join("src/lib.rs"), "")?;
    write(&manifest, manifest_text)?;
    write(&sums, value.to_string())
}

/// Steps of `./x dist` that the second build repeats.
const REPEATED: [&str; 5] = ["library", "headers", "command", "python wheel", "bill of materials"];

/// Builds everything for this machine from the source archive, in another folder and without the network, and compares it
/// with the files in `dist`.
pub(crate) fn build_again(run: &Run) -> Result<()> {
    let folder = paths::scratch_dir("second-build");
    let copy = folder.join(stem());
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(copy.join(".x")).map_err(|e| format!("{}: {e}", folder.display()))?;
    run.cmd(Cmd::new("tar").arg("-xzf").arg(archive()).arg("-C").arg(&folder))?;
    // What is set up for this folder is used there, too.
    let set_up = fs::read_dir(paths::root().join(".x")).map_err(|e| e.to_string())?.flatten();
    for entry in set_up
        .filter(|entry| entry.file_name() == "setup" || entry.file_name().to_string_lossy().starts_with("venv"))
    {
        let link = copy.join(".x").join(entry.file_name());
        symlink(entry.path(), &link).map_err(|e| format!("{}: {e}", link.display()))?;
    }
    let dist = Cmd::new(copy.join("x")).arg("dist").args(REPEATED.map(|step| format!("--only={step}")));
    let target = copy.join("target");
    run.cmd(dist.in_folder(&copy).env("CARGO_TARGET_DIR", target).env("CARGO_NET_OFFLINE", "true"))?;
    let again = copy.join("dist");
    let (equal, different) = compare(&again, &paths::root().join("dist"))?;
    run.say(&format!("made again: {}", equal.join(", ")))?;
    if !different.is_empty() || equal.is_empty() {
        let (names, folder) = (different.join(", "), again.display());
        return Err(format!("the second build made other files (in {folder}): {names}").into());
    }
    fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()).into())
}

/// Compares all files in the folder `again` with the files of the same names in `before`. Returns the names of those that
/// are equal, and of those that are different or missing.
fn compare(again: &Path, before: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let files = Cmd::new("find").arg(again).words("-type f").output()?;
    let names = files.lines().filter_map(|file| Path::new(file).strip_prefix(again).ok());
    let is_equal = |name: &Path| fs::read(again.join(name)).ok() == fs::read(before.join(name)).ok();
    let (equal, different): (Vec<&Path>, Vec<&Path>) = names.partition(|name| is_equal(name));
    let shown = |names: Vec<&Path>| names.iter().map(|name| name.display().to_string()).collect();
    Ok((shown(equal), shown(different)))
}

/// Installs the source archive by pip, without the network, and runs the command of the package.
pub(crate) fn install(run: &Run) -> Result<()> {
    let folder = paths::scratch_dir("source-by-pip");
    let _ = fs::remove_dir_all(&folder);
    run.cmd(Cmd::new(paths::python().ok_or("no Python environment")?).words("-m venv").arg(&folder))?;
    let pip =
        Cmd::new(folder.join("bin/python")).words("-m pip --disable-pip-version-check install --no-index");
    // Nothing is measured with this build, so it need not be optimised.
    let pip = pip.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0").env("CARGO_PROFILE_RELEASE_LTO", "off");
    let pip = pip.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16").env("CARGO_NET_OFFLINE", "true");
    run.cmd(pip.env("CARGO_TARGET_DIR", folder.join("target")).arg(archive()))?;
    run.cmd(Cmd::new(folder.join("bin/anyfn")).arg("doctor").in_folder(&folder))?;
    fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()).into())
}

/// Returns the reason why the archive cannot be made, if any.
pub(crate) fn unavailable() -> Option<String> {
    if !paths::root().join(".git").exists() {
        return Some("this is no checkout, as the list of files comes from Git".into());
    }
    python::unavailable()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{REPEATED, compare, empty, of_root};
    use crate::{paths, steps};

    #[test]
    fn the_second_build_repeats_steps_that_exist() {
        let steps = steps::dist(false);
        for name in REPEATED {
            assert!(steps.iter().any(|step| step.name == name), "{name}");
        }
    }

    #[test]
    fn files_are_compared_byte_for_byte() {
        let folder = std::env::temp_dir().join(format!("x-compare-{}", std::process::id()));
        for (file, content) in
            [("a/lib/same", "1"), ("b/lib/same", "1"), ("a/other", "1"), ("b/other", "2"), ("a/new", "1")]
        {
            fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
            fs::write(folder.join(file), content).unwrap();
        }
        let (equal, mut different) = compare(&folder.join("a"), &folder.join("b")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        different.sort();
        assert_eq!(
            (equal, different),
            (vec!["lib/same".to_owned()], vec!["new".to_owned(), "other".to_owned()])
        );
    }

    #[test]
    fn crates_for_windows_keep_their_names_only() {
        let folder = std::env::temp_dir().join(format!("x-empty-{}", std::process::id()));
        fs::create_dir_all(folder.join("src")).unwrap();
        fs::write(folder.join("Cargo.toml"), "[package]\n").unwrap();
        fs::write(folder.join("src/api.rs"), "fn api() {}").unwrap();
        let sums = folder.join(".cargo-checksum.json");
        fs::write(&sums, r#"{"files": {"src/api.rs": "12"}, "package": "34"}"#).unwrap();
        empty(&folder).unwrap();
        let left = (fs::read_to_string(&sums).unwrap(), folder.join("src/api.rs").exists());
        let sources = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((left.0.as_str(), left.1, sources.as_str()), (r#"{"files":{},"package":"34"}"#, false, ""));
    }

    #[test]
    fn the_archive_has_the_settings_of_the_python_package() {
        let project = std::fs::read_to_string(paths::root().join("bindings/python/pyproject.toml")).unwrap();
        assert!(of_root(&project).unwrap().contains("\nbackend-path = [\"bindings/python\"]\n"));
        assert!(of_root("").is_err());
    }
}
