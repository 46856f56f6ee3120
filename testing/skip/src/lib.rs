//! Reports of skipped tests, with the reasons why they were skipped.
//!
//! The test harness of Rust counts a test that returns early as passed and hides its output. [`skip!`](crate::skip)
//! therefore also appends a line to the file that `ANYFN_SKIPS` names; `./x test` lists these lines below its table. The
//! tests of the Python package write the same lines (`conftest.py`).

use std::io::Write as _;
use std::panic::Location;

/// Reports that the current test is skipped, and returns from the test. The arguments format the reason.
///
/// ```
/// fn test() {
///     if std::env::var_os("NO_SUCH_VARIABLE").is_none() {
///         anyfn_skip::skip!("{} is not set", "NO_SUCH_VARIABLE");
///     }
///     unreachable!();
/// }
/// test();
/// ```
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::report(&::std::format!($($reason)+));
        return
    }};
}

/// Reports that the current test is skipped. Helper functions of tests call this function; the test itself must
/// then return.
#[track_caller]
pub fn report(reason: &str) {
    let thread = std::thread::current();
    // The harness names each thread after its test, unless it runs tests on the main thread.
    let test = match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => Location::caller().to_string(),
    };
    eprintln!("skipped: {test}: {reason}");
    if let Some(file) = std::env::var_os("ANYFN_SKIPS") {
        // A single write, so that the lines of concurrent processes do not mix.
        let line = format!("{test}\t{}\n", reason.replace(['\n', '\t'], " "));
        let file = std::fs::File::options().create(true).append(true).open(file);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("the file of skipped tests is writable");
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    #[test]
    fn the_reason_is_a_line_of_the_file() {
        let file = std::env::temp_dir().join(format!("anyfn-skips-{}", std::process::id()));
        let done = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::skips_itself", "--include-ignored", "--test-threads=2"])
            .env("ANYFN_SKIPS", &file)
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(text, "tests::skips_itself\ttoo early: it is 5\n");
    }

    #[test]
    #[ignore = "started by the test above"]
    fn skips_itself() {
        crate::skip!("too early: it is {}", 5);
    }
}
