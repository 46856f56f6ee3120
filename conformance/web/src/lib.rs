//! The conformance corpus and the runtime as one WebAssembly module, which `run.mjs` runs. The
//! module imports from its host a function that receives a line of text, and what the JavaScript package imports (`anyfn-web`), over which
//! the package runs the corpus, too.

use anyfn::{register, registry};
use anyfn_conformance::run;
use anyfn_host as _;
use anyfn_testing as _;
use anyfn_web as _;

/// Adds two numbers. The function is named `add` to check that this name does not clash with a name
/// in the code that `#[register]` generates.
#[register("web.add")]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// Checks that the registry contains `web.add`, a function of this crate to which no code refers
/// directly.
fn own_function() -> Result<(), String> {
    let sum = registry::get("web.add").and_then(|add| add.call((1, 2))?.get::<i64>());
    (sum.as_ref().ok() == Some(&3)).then_some(()).ok_or(format!("web.add: {sum:?}"))
}

/// Runs the test cases that need no devices, threads or modules, and reports each failure to the
/// host. Returns the number of failures, or -1 if the corpus cannot be loaded.
#[unsafe(no_mangle)]
pub extern "C" fn run_corpus() -> i32 {
    std::panic::set_hook(Box::new(|panic| report(&panic.to_string())));
    let corpus = match anyfn_conformance::load_core() {
        Ok(corpus) => corpus,
        Err(message) => {
            report(&message);
            return -1;
        }
    };
    let calls: Vec<_> = corpus.calls.iter().filter(|case| case.needs.is_none()).collect();
    let outcomes = corpus.values.iter().map(run::value).chain(calls.iter().map(|case| run::call(case)));
    let failed: Vec<String> = outcomes.chain([own_function()]).filter_map(Result::err).collect();
    failed.iter().for_each(|message| report(message));
    report(&format!("{} values and {} calls, {} failed", corpus.values.len(), calls.len(), failed.len()));
    i32::try_from(failed.len()).unwrap_or(i32::MAX)
}

/// Passes a line of text to the host.
fn report(line: &str) {
    #[cfg(target_family = "wasm")]
    {
        #[link(wasm_import_module = "host")]
        unsafe extern "C" {
            fn report(text: *const u8, length: usize);
        }
        // SAFETY: the host reads this many bytes at the address during the call.
        unsafe { report(line.as_ptr(), line.len()) };
    }
    #[cfg(not(target_family = "wasm"))]
    println!("{line}");
}
