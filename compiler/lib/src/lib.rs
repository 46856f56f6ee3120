//! The compiler as a plugin: a library like any other, which a program loads when it wants to compile. The runtime has
//! nothing of it.

extern crate anyfn_compiler as _;

anyfn::export!();
