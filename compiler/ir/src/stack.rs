//! Stack space for recursion over deeply nested nodes.

/// Stack space in bytes that a step of a recursion requires. If less remains, a new segment of `MORE` bytes
/// is allocated.
const RED_ZONE: usize = 64 * 1024;
const MORE: usize = 1024 * 1024;

/// Runs a step of a recursion over nodes, on a new stack segment if little stack space remains.
pub fn on_enough_stack<R>(step: impl FnOnce() -> R) -> R {
    stacker::maybe_grow(RED_ZONE, MORE, step)
}
