//! Record of the types that a library registers while it is opened, or while its registrations are collected.

use core::cell::RefCell;

/// Type index of a type that a library has registered, or to which it has added methods or attributes. The flag is true
/// if it has certainly registered the type itself.
pub(crate) type Recorded = (i32, bool);

thread_local! {
    /// Type indices of the types that libraries are registering on this thread, one list for each library. If
    /// registering opens another library, its list is added at the end.
    static RECORDED: RefCell<Vec<Vec<Recorded>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `body`, and returns the types that it registers, beside its result.
pub(crate) fn recorded<T>(body: impl FnOnce() -> T) -> (T, Vec<Recorded>) {
    /// Guard that removes the list even if `body` panics.
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            let _ = RECORDED.try_with(|all| all.borrow_mut().pop());
        }
    }
    RECORDED.with_borrow_mut(|all| all.push(Vec::new()));
    let leave = Leave;
    let result = body();
    let types = RECORDED.with_borrow_mut(|all| all.last_mut().map(core::mem::take));
    drop(leave);
    (result, types.unwrap_or_default())
}

/// Records the registration of a type or of a part of it. `is_own` is false if the part may belong to the type of
/// another library.
pub(crate) fn note(type_index: i32, is_own: bool) {
    let _ = RECORDED.try_with(|all| {
        let mut all = all.borrow_mut();
        let Some(types) = all.last_mut() else { return };
        match types.iter_mut().find(|(known, _)| *known == type_index) {
            Some((_, known)) => *known |= is_own,
            None => types.push((type_index, is_own)),
        }
    });
}
