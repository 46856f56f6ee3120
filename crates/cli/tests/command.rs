//! Tests of the command `anyfn` on real files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn anyfn(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_anyfn")).args(words).output().expect("the command runs")
}

/// Returns the path of the plugin `anyfn-testing`, which contains sample functions. Cargo has built it beside
/// the test program.
fn plugin() -> PathBuf {
    let deps = std::env::current_exe().expect("this program has a path");
    let deps = deps.parent().expect("it is in a folder");
    let candidates = [deps.join("libanyfn_testing.so"), deps.join("../libanyfn_testing.so")];
    candidates
        .into_iter()
        .find(|path| path.exists())
        .expect("anyfn-testing is a dev-dependency, so it is built")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_plugin_is_shown_as_text_and_as_json() {
    let plugin = plugin();
    let path = plugin.to_str().expect("the path is text");
    let output = anyfn(&["inspect", path]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in
        ["ELF shared library", "add_one", "built for ABI", "registers global functions", "TVMFFIGetTypeInfo"]
    {
        assert!(shown.contains(part), "no `{part}` in\n{shown}");
    }
    let output = anyfn(&["inspect", "--json", path]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(found["machine"], if cfg!(target_arch = "x86_64") { "x86-64" } else { "AArch64" });
    assert_eq!(found["problem"], serde_json::Value::Null);
    assert_eq!(found["registers_functions"], true);
    let names = found["functions"].as_array().expect("a list");
    assert!(names.iter().any(|name| name == "add_one"), "{names:?}");
    assert_eq!(found["size"], std::fs::metadata(&plugin).expect("it is there").len());
}

#[test]
fn functions_are_called() {
    let plugin = plugin();
    let path = plugin.to_str().expect("the path is text");
    let says = |words: &[&str], expected: &str| {
        let output = anyfn(&[&["call", path], words].concat());
        assert_eq!(text(&output.stdout).trim_end(), expected, "{words:?}: {}", text(&output.stderr));
    };
    says(&["add_one", "41"], "42");
    says(&["add_one", "-41"], "-40");
    says(&["testing.concat", "--", "--json"], "'----json'");
    says(&["testing.concat", "a", "b"], "'ab'");
    says(&["testing.echo", "[1, [2.5, null], true]"], "[1, [2.5, None], True]");
    says(&["testing.map_sum", "{\"a\": 1, \"b\": 2}"], "3");
    says(&["testing.defaults", "1"], "'1 2 x None [1, 2]'");
    says(&["testing.echo", "{\"b\": 1, \"a\": [NaN]}"], "{'b': 1, 'a': [nan]}");
    says(&["testing.echo", "99999999999999999999"], "99999999999999999999");
    says(&["testing.echo", "int8[[1, 2], [3, 4]]"], "int8[[1, 2], [3, 4]]");
    says(&["testing.echo", "complex64[1]"], "complex64[(1+0j)]");
    says(&["testing.saxpy", "2", "float32[1, 2]", "float32[0, 1]"], "None\nargument 2: float32[2.0, 5.0]");
    // A file as NumPy writes it: two numbers in the first dimension, which varies fastest.
    let header = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 2), }\n";
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).expect("it is short").to_le_bytes());
    bytes.extend(header.bytes().chain([0, 1, 0, 2, 0, 3, 0xff, 0xff]));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("x.npy");
    std::fs::write(&file, bytes).expect("it can be written");
    says(&["testing.echo", &format!("@{}", file.display())], "int16[[1, 3], [2, -1]]");
    let output = anyfn(&["call", path, "testing.echo", "int8[300]"]);
    assert!(text(&output.stderr).starts_with("anyfn call: ValueError: "), "{}", text(&output.stderr));
    let output = anyfn(&["call", path, "testing.echo", &"[".repeat(100_000)]);
    assert_eq!(text(&output.stderr), "");
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let output = anyfn(&["call", path, "testing.echo", &deep]);
    assert!(text(&output.stderr).contains("nested more than 500 levels deep"), "{}", text(&output.stderr));
    let output = anyfn(&["call", path, "add_one", "x"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("TypeError"), "{}", text(&output.stderr));
}

#[test]
fn a_call_without_its_arguments_says_what_to_write() {
    let plugin = plugin();
    let path = plugin.to_str().expect("the path is text");
    let says = |words: &[&str], code: i32, parts: &[&str]| {
        let output = anyfn(&[&["call"], words].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        for part in parts {
            assert!(said.contains(part), "{words:?}: no `{part}` in\n{said}");
        }
    };
    let example = format!("example: anyfn call {path} add_one 1\n");
    says(&[path, "add_one"], 1, &["`add_one` takes 1 argument, got 0\n  x: int\n", &example]);
    let example = format!("example: anyfn call {path} testing.concat text text\n");
    says(
        &[path, "testing.concat", "a"],
        1,
        &["`testing.concat` takes 2 arguments, got 1\n  a: str\n  b: str\n", &example],
    );
    says(&[path, "testing.concat", "a", "b", "c"], 1, &["takes 2 arguments, got 3"]);
    says(&[path, "testing.array_sum"], 1, &["  values: Array<int>\n", "testing.array_sum '[1]'\n"]);
    says(&[path, "testing.map_sum"], 1, &["testing.map_sum '{\"key\":1}'\n"]);
    says(
        &[path, "testing.defaults"],
        1,
        &["`testing.defaults` takes 1 to 5 arguments, got 0\n", "  s: str = 'x'\n"],
    );
    says(
        &[path, "testing.saxpy"],
        1,
        &["takes 3 arguments, got 0", "  x: Tensor\n", "1.5 'float32[1, 2]' 'float32[1, 2]'\n"],
    );
    says(&[path, "testing.apply_on_threads"], 1, &["takes 2 arguments, got 0", "from a program"]);
    says(&[], 2, &["needs a file and the name of a function, got nothing", "call FILE NAME [ARG...]"]);
    says(&["saxpy"], 2, &["got `saxpy`; to call a function of that name, write `anyfn call FILE.so saxpy"]);
    says(&["absent.so"], 2, &["got `absent.so`, a file that does not exist"]);
    says(&[path], 2, &["add one of its functions: add_one, echo_any, scale"]);
}

/// Tests the help of an entry of the table of commands and of its subcommands. `path` are the words after `anyfn`.
fn check_help(entry: &serde_json::Value, path: &[&str]) {
    let output = anyfn(&[path, &["--help"]].concat());
    let said = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{path:?}: {output:?}");
    assert!(
        said.starts_with(&["usage: anyfn", path.join(" ").as_str()].join(" ").trim_end().to_owned()),
        "{said}"
    );
    assert!(said.lines().all(|line| line.len() <= 100), "{said}");
    assert_eq!(text(&anyfn(&[&["help"], path].concat()).stdout), said);
    let list = |key: &str| entry[key].as_array().cloned().unwrap_or_default();
    for name in list("options").iter().flat_map(|option| option["names"].as_array().expect("a list")) {
        assert!(said.contains(name.as_str().expect("a string")), "{path:?}: no {name} in\n{said}");
    }
    for command in list("commands") {
        let name = command["name"].as_str().expect("a string");
        assert!(said.contains(&format!("\n  {name} ")), "{path:?}: no {name} in\n{said}");
        check_help(&command, &[path, &[name]].concat());
    }
}

#[test]
fn each_command_has_its_own_help() {
    check_help(&serde_json::from_str(include_str!("../commands.json")).expect("it is JSON"), &[]);
    // An error shows the usage only.
    let output = anyfn(&["inspect", "--yaml"]);
    let expected =
        "usage: anyfn inspect [--json] FILE...\nanyfn inspect: error: `inspect` has no option `--yaml`\n";
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(2), expected));
    let (short, long) = (anyfn(&["-V"]), anyfn(&["--version"]));
    assert!(short.stdout == anyfn(&["version"]).stdout && long.stdout == short.stdout);
}

#[test]
fn completion_scripts_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let output = anyfn(&["completion", shell]);
        assert!(output.status.success() && text(&output.stdout).contains("rpc"), "{output:?}");
    }
    for (words, said) in [(&["completion"][..], "got nothing"), (&["completion", "csh"], "got `csh`")] {
        let output = anyfn(words);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(said), "{output:?}");
    }
}

#[test]
fn a_bundle_is_made_and_shown() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bundles");
    std::fs::create_dir_all(&folder).expect("it can be made");
    let path = |name: &str| folder.join(name).to_str().expect("the path is text").to_owned();
    let (code, out) = (path("code.txt"), path("f.so"));
    std::fs::write(&code, "device code").expect("it can be written");
    let plugin = plugin();
    let library = plugin.to_str().expect("the path is text");
    let carry = format!("cli_kind={code}");
    // A library that is already linked needs no linker.
    let output = anyfn(&["bundle", &out, library, "--carry", &carry, "--linker", "no_such_linker"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&anyfn(&["inspect", &out]).stdout);
    let tree: Vec<&str> = shown.lines().filter_map(|line| line.get(34..)).collect();
    assert!(tree.windows(2).any(|two| two == ["library (this file)", "  cli_kind (11 bytes)"]), "{shown}");
    // The bundle loads without a loader of that kind. Using the module reports the missing loader.
    assert_eq!(text(&anyfn(&["call", &out, "add_one", "41"]).stdout), "42\n");
    let output = anyfn(&["call", &out, "on_device"]);
    assert!(
        text(&output.stderr).contains("it may be in the module of kind `cli_kind`"),
        "{}",
        text(&output.stderr)
    );

    let fails = |words: &[&str], code: i32, expected: &str| {
        let output = anyfn(&[&["bundle"], words].concat());
        assert!(text(&output.stderr).contains(expected), "{words:?}: {}", text(&output.stderr));
        assert_eq!(output.status.code(), Some(code));
    };
    let new = path("new.so");
    fails(&[], 2, "`bundle` needs a name for the new file");
    fails(&[&new, library, "--carry"], 2, "expected a value after `--carry`, got nothing");
    fails(&[&new, library, "--carry", "kind"], 2, "as KIND=FILE, got `kind`");
    fails(&[&new, library, "--carry", "kind=no/such"], 1, "Cannot read no/such");
    // What follows `--` is a file, not an option for the linker.
    fails(&[&new, library, "--", "-lnothing.o"], 1, "-lnothing.o");
    fails(&[&new, library, "--nonsense"], 2, "`bundle` has no option `--nonsense`");
    fails(&[&new], 1, "no code was given");
    fails(&[&new, &out, "--carry", &carry], 1, "it already contains modules");
    assert!(!Path::new(&new).exists());
}

/// Creates a plugin from the template that `option` selects, builds the plugin and runs its test.
/// Skips the test if one of `tools` is missing.
fn template(option: &str, tools: &[&str], env: &[(&str, &str)]) {
    let missing = tools.iter().find(|tool| Command::new(tool).arg("--version").output().is_err());
    if let Some(tool) = missing {
        anyfn_skip::skip!("there is no {tool}");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("plugin{option}"));
    let _ = std::fs::remove_dir_all(&folder);
    let path = folder.to_str().expect("the path is text");
    let output = anyfn(&["new", option, path]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let again = anyfn(&["new", option, path]);
    assert!(text(&again.stderr).contains("already exists"));
    // Variables that Cargo sets for its tests would affect the plugin's own build.
    let mut make = Command::new("make");
    make.arg("test")
        .current_dir(&folder)
        .env_remove("RUSTFLAGS")
        .env("CARGO_TARGET_DIR", folder.join("target"));
    let output = make.envs(env.iter().copied()).output().expect("make runs");
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && said.contains("passed"), "{said}");
}

#[test]
fn python_packages_are_made_of_templates() {
    for (option, source) in [
        ("--rust", "Cargo.toml src/lib.rs backend.py"),
        ("--c", "src/my-plugin.c"),
        ("--cpp", "src/my-plugin.cc"),
    ] {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("package{option}/my-plugin"));
        let _ = std::fs::remove_dir_all(&folder);
        let output = Command::new(env!("CARGO_BIN_EXE_anyfn"))
            .args(["new", "--python-package", option])
            .arg(&folder)
            .env("ANYFN_ROOT", Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
            .output()
            .expect("the command runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).ends_with("my-plugin; see its README.md\n"));
        for name in source.split(' ').chain(["pyproject.toml", "src/my_plugin/py.typed", ".gitignore"]) {
            let content = std::fs::read_to_string(folder.join(name)).expect(name);
            assert!(!content.contains("@NAME@") && !content.contains("@LIBRARY@"), "{name}: {content}");
        }
        assert!(!folder.join("Makefile").exists());
    }
}

#[test]
fn a_c_plugin_is_made_of_a_template() {
    template("--c", &["make", "cc"], &[]);
}

#[test]
fn a_rust_plugin_is_made_of_a_template() {
    template("--rust", &["make", "cargo"], &[]);
}

#[test]
fn a_cpp_plugin_is_made_of_a_template() {
    template("--cpp", &["make", "c++"], &[]);
}

/// Returns an empty folder for the files of a test.
fn empty_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("it can be made");
    std::fs::canonicalize(folder).expect("it is there")
}

/// Tests `config` of a command that is installed in folders such as those of `./x dist`.
#[test]
fn an_installation_reports_its_folders() {
    let folder = empty_folder("my installation");
    let program = folder.join("bin/anyfn");
    for name in ["bin", "lib", "include"] {
        std::fs::create_dir(folder.join(name)).expect("it can be made");
    }
    std::fs::copy(env!("CARGO_BIN_EXE_anyfn"), &program).expect("it can be copied");
    let config = |words: &[&str]| {
        let output = Command::new(&program).arg("config").args(words).env_remove("ANYFN_ROOT").output();
        let output = output.expect("the command runs");
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let whole = folder.display().to_string();
    let (code, _, said) = config(&["--libdir"]);
    assert!(
        code == Some(1) && said.contains(&format!("neither {whole}/lib nor {whole}/bin contains it")),
        "{said}"
    );
    std::fs::write(folder.join("lib/libanyfn.so"), "").expect("it can be written");
    // The build folder may be inside of the source tree, whose headers are then found.
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/c/include/anyfn");
    std::os::unix::fs::symlink(headers, folder.join("include/anyfn")).expect("it can be made");
    assert_eq!(config(&["--includedir"]), (Some(0), format!("{whole}/include\n"), String::new()));
    assert_eq!(config(&["--libdir"]), (Some(0), format!("{whole}/lib\n"), String::new()));
    let flags = format!("'-I{whole}/include' '-L{whole}/lib' '-Wl,-rpath,{whole}/lib' -lanyfn\n");
    assert_eq!(config(&["--cflags", "--ldflags"]), (Some(0), flags, String::new()));
    let (code, _, said) = config(&[]);
    assert!(code == Some(2) && said.contains("expected one of --cflags, --ldflags, --includedir and --libdir"));

    // A plugin is compiled with what `config` prints, and called.
    let source = "#include <anyfn/anyfn.h>\nANYFN_EXPORT(f) { return anyfn_return_int(result, 42); }\n";
    std::fs::write(folder.join("f.c"), source).expect("it can be written");
    let compile =
        r#"eval "cc -shared -fPIC $("$ANYFN" config --cflags) f.c -o f.so" && "$ANYFN" call ./f.so f"#;
    let output = Command::new("sh").args(["-c", compile]).env("ANYFN", &program).current_dir(&folder).output();
    let output = output.expect("there is a shell");
    assert_eq!(text(&output.stdout), "42\n", "{}", text(&output.stderr));
}

#[test]
fn what_cannot_be_inspected_is_an_error() {
    let refused = |words: &[&str], status: i32, part: &str| {
        let output = anyfn(words);
        assert_eq!(output.status.code(), Some(status), "{words:?}");
        assert!(text(&output.stderr).contains(part), "{words:?}: {}", text(&output.stderr));
    };
    refused(&["inspect", "absent.so"], 1, "there is no such file");
    refused(&["inspect", env!("CARGO_MANIFEST_PATH")], 1, "a text file");
    refused(&["inspect", "/"], 1, "it is a directory");
    refused(&["new", "--c"], 2, "and a folder");
    refused(&["new", "--cobol", "x"], 2, "no option `--cobol`");
    refused(&["new", "--python-package", "x"], 2, "one of --rust, --c, --cpp and a folder");
    refused(&["new", "--python-package=yes", "--c", "x"], 2, "no value after `--python-package`, got `yes`");
    refused(&["new", "--c", "/"], 1, "is not a valid plugin name");
    refused(&["new", "--c", "Upper"], 1, "is not a valid plugin name");
    refused(&["call", "x.so"], 2, "needs a file and the name of a function, got `x.so`");
    refused(&["call", "absent.so", "f"], 1, "there is no such file");
    refused(&["inspect"], 2, "needs a file");
    refused(&["inspect", "--yaml", "x.so"], 2, "no option `--yaml`");
    refused(&["doctor", "--now"], 2, "no option `--now`");
    refused(&["doctor", "now"], 2, "`doctor` does not expect the argument `now`");
    refused(&["doctor", "--json=1"], 2, "expected no value after `--json`, got `1`");
    refused(&["new", "--c", "--rust", "x"], 2, "one of --rust, --c, --cpp and a folder");
    refused(&["inspect", "--", "--yaml"], 1, "there is no such file");
    refused(&["call", "--json", "x.so"], 2, "`call` has no option `--json`");
    refused(&["help", "frobnicate"], 2, "there is no command `frobnicate`; `anyfn help` lists the commands");
    refused(&["--yaml"], 2, "`anyfn` has no option `--yaml`");
    refused(&["frobnicate"], 2, "there is no command `frobnicate`");
    refused(&[], 2, "usage: anyfn");
}

#[test]
fn the_doctor_tries_what_works_here() {
    let output = anyfn(&["doctor"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    for id in ["runtime ", "loader.libc", "compiler", "threads", "memory", "device.cpu:0", "device.cuda"] {
        assert!(said.contains(id), "no `{id}` in\n{said}");
    }
    let output = anyfn(&["doctor", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!((found["ok"].as_bool(), found["anyfn"].as_str()), (Some(true), Some(env!("CARGO_PKG_VERSION"))));
    for check in found["checks"].as_array().expect("a list") {
        for key in ["id", "status", "done", "why", "to_do"] {
            assert!(check[key].is_string(), "{check}");
        }
    }
    // A missing compiler is not a problem, but a missing folder for temporary files is.
    let without = |variable: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anyfn"));
        command.args(["doctor"]).env(variable, value).env_remove("CC");
        command.output().expect("the command runs")
    };
    let output = without("PATH", "");
    assert!(output.status.success() && text(&output.stdout).contains("off      compiler"), "{output:?}");
    let output = without("TMPDIR", "/absent");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("problem  storage.temporary"), "{output:?}");
}

#[test]
fn libraries_of_the_system_can_be_inspected() {
    for path in ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6"] {
        if Path::new(path).exists() {
            let output = anyfn(&["inspect", path]);
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert!(text(&output.stdout).contains("libc.so.6"));
        }
    }
    let help = anyfn(&["help"]);
    assert!(help.status.success() && text(&help.stdout).contains("inspect"));
    assert!(text(&anyfn(&["version"]).stdout).starts_with("anyfn "));
    for words in [&["--help"][..], &["-h"]] {
        let output = anyfn(words);
        assert!(output.status.success() && output.stdout == help.stdout, "{words:?}");
    }
}

#[test]
fn arguments_that_are_not_in_utf_8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let output =
        Command::new(env!("CARGO_BIN_EXE_anyfn")).arg("inspect").arg(OsStr::from_bytes(b"\xff.so")).output();
    let output = output.expect("the command runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("expected arguments in UTF-8"), "{}", text(&output.stderr));
}

/// Time limit, in seconds, after which a tested command is terminated.
const PATIENCE: &str = "60";

fn patient(words: &[&str], out: Option<&Path>) -> Output {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE).arg(env!("CARGO_BIN_EXE_anyfn")).args(words);
    if let Some(out) = out {
        command.stdout(std::fs::File::options().write(true).open(out).expect("it can be written"));
    }
    command.output().expect("there is `timeout`")
}

#[test]
fn a_full_device_is_an_error() {
    let plugin = plugin();
    let path = plugin.to_str().expect("the path is text");
    let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join("full-device");
    let _ = std::fs::remove_dir_all(&new);
    for words in [
        &["version"][..],
        &["help"],
        &["inspect", path],
        &["call", path, "add_one", "1"],
        &["doctor"],
        &["doctor", "--json"],
        &["new", "--c", new.to_str().expect("the path is text")],
        &["rpc", "key", "alice"],
        &["rpc", "server", "--port", "0"],
    ] {
        let output = patient(words, Some(Path::new("/dev/full")));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("cannot write the output"), "{words:?}: {said}");
        assert!(!said.contains("panicked"), "{words:?}: {said}");
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    for words in [&["version"][..], &["help"], &["doctor"], &["rpc", "key", "alice"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anyfn"));
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = command.args(words).stdout(writer).output().expect("the command runs");
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    }
    // If the error output cannot be written either, only the exit code shows the error.
    let mut command = Command::new(env!("CARGO_BIN_EXE_anyfn"));
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("it can be written");
    let status = command.arg("version").stdout(full()).stderr(full()).status().expect("the command runs");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn what_is_no_regular_file_is_not_read() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("not-regular");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("it can be made");
    let path = |name: &str| folder.join(name).to_str().expect("the path is text").to_owned();
    let (pipe, sparse, new) = (path("pipe.so"), path("sparse.o"), path("new.so"));
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("there is `mkfifo`").success());
    let zero = path("zero.so");
    std::os::unix::fs::symlink("/dev/zero", &zero).expect("it can be made");
    // A sparse file of five gibibytes, which takes no space on the disk.
    std::fs::File::create(&sparse).and_then(|file| file.set_len(5 << 30)).expect("it can be made");
    let plugin = plugin();
    let library = plugin.to_str().expect("the path is text");
    for (file, why) in [
        (&*zero, "a device, pipe or socket"),
        (&*pipe, "a device, pipe or socket"),
        (folder.to_str().expect("the path is text"), "a directory"),
        (&*sparse, "at most 4294967296 bytes, got 5368709120"),
    ] {
        for words in
            [vec!["bundle", &new, library, "--carry", &format!("a={file}")], vec!["bundle", &new, file]]
        {
            let output = patient(&words, None);
            assert_eq!(output.status.code(), Some(1), "{words:?}: {}", text(&output.stderr));
            assert!(text(&output.stderr).contains(why), "{words:?}: {}", text(&output.stderr));
        }
    }
    for file in [&zero, &pipe] {
        for words in [
            vec!["inspect", file],
            vec!["call", file, "f"],
            vec!["bundle", &new, library, "--load", file],
            vec!["bundle", &new, library, "--import", file],
            vec!["rpc", "server", "--port", "0", "--keys", file],
            vec!["rpc", "server", "--port", "0", "--key-file", file],
        ] {
            let output = patient(&words, None);
            assert_eq!(output.status.code(), Some(1), "{words:?}: {}", text(&output.stderr));
            assert!(text(&output.stderr).contains("regular file"), "{words:?}: {}", text(&output.stderr));
        }
    }
    assert!(!Path::new(&new).exists());
}
