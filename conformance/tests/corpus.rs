//! Runs the test cases of the conformance corpus through the Rust API.

use anyfn_conformance::run;
use anyfn_host as _;
use anyfn_testing as _;

#[test]
fn every_value_goes_out_and_in() {
    let corpus = anyfn_conformance::load().unwrap();
    assert!(corpus.values.len() > 50);
    let failed: Vec<_> = corpus.values.iter().filter_map(|case| run::value(case).err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn every_call_gives_what_the_corpus_says() {
    let corpus = anyfn_conformance::load().unwrap();
    assert!(corpus.calls.len() > 50);
    let failed: Vec<_> = corpus.calls.iter().filter_map(|case| run::call(case).err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
