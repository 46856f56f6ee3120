//! The host program that does not export its runtime to the libraries that it loads.

mod host;

use anyfn_host as _;

fn main() {
    host::main();
}
