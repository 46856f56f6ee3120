//! Compiler functions for other languages. This module only registers functions.

mod arith;
mod build;
mod calls;
mod schedule;
mod stmts;
mod te;
mod text;
mod tir;
mod transform;
