//! The compiler for other languages: registered functions, and nothing else.

mod arith;
mod build;
mod calls;
mod schedule;
mod stmts;
mod te;
mod text;
mod tir;
