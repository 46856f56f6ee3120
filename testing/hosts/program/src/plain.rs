//! The same program, which keeps its runtime to itself.

mod host;

use anyfn_host as _;

fn main() {
    host::main();
}
