//! The host program that does not export its runtime.

mod host;

use anyfn_host as _;

fn main() {
    host::main();
}
