//! Record of the types that a library registers while it is opened, or while its registrations are collected.

use core::cell::RefCell;

thread_local! {
    /// Type indices of the types that libraries are registering on this thread, one list for each library. If
    /// registering opens another library, its list is added at the end.
    static RECORDED: RefCell<Vec<Vec<i32>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `body`, and returns the types that it registers, beside its result.
pub(crate) fn recorded<T>(body: impl FnOnce() -> T) -> (T, Vec<i32>) {
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

/// Records the registration of a type, or of a part of it, such as a field.
pub(crate) fn note(type_index: i32) {
    let _ = RECORDED.try_with(|all| {
        if let Some(types) = all.borrow_mut().last_mut()
            && !types.contains(&type_index)
        {
            types.push(type_index);
        }
    });
}
