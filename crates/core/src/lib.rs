//! The one implementation behind the anyfn C ABI.
