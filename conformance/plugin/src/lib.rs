//! The Rust frontend as a caller in the matrix of frontends: a plugin that runs the corpus with functions that another frontend has
//! defined.

use anyfn_conformance::run;

anyfn::export! {
    /// Runs the cases with these names, and the cases of errors, with the functions whose names begin with a prefix. Returns the
    /// numbers of checks that passed and failed.
    fn run_cases(prefix: &str, names: Vec<String>) -> anyfn::Result<Vec<i64>> {
        let corpus = anyfn_conformance::load().map_err(|why| anyfn::Error::new("RuntimeError", &why))?;
        let (mut passed, mut failed) = (0, 0);
        let mut count = |outcome: Result<(), String>, checks: i64| match outcome {
            Ok(()) => passed += checks,
            Err(message) => {
                println!("FAILED {message}");
                failed += checks;
            }
        };
        for case in corpus.values.iter().filter(|case| names.contains(&case.name)) {
            count(run::value_through(prefix, case), 2);
        }
        count(run::errors_through(prefix), 2);
        Ok(vec![passed, failed])
    }
}
