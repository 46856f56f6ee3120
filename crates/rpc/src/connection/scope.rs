//! Tracking of the handles in one message.

use std::cell::RefCell;
use std::sync::Arc;

use anyfn::{Any, Error, ObjectRef, Result, TensorView, bail, error};

use super::{Connection, Decoding};
use crate::loan;
use crate::value::{Class, Given, Names};

/// Scope of one message, which records the handles in it. Dropping the scope invalidates the handles of
/// tensors that the message passes only for the duration of a call.
pub(crate) struct Scope<'a> {
    connection: &'a Arc<Connection>,
    loans: RefCell<Vec<u64>>,
    /// Handles of local objects that the outgoing message contains.
    given: RefCell<Vec<u64>>,
    /// Decoding state of the received message; `None` for an outgoing message.
    decoding: Option<&'a Decoding<'a>>,
}

impl<'a> Scope<'a> {
    /// Creates the scope of an outgoing message. Dropping the scope releases the handles in the message,
    /// unless [`Scope::is_written`] is called first.
    pub(crate) fn new(connection: &'a Arc<Connection>) -> Scope<'a> {
        Scope { connection, loans: RefCell::default(), given: RefCell::default(), decoding: None }
    }

    /// Creates the scope of a received message.
    pub(crate) fn of_read(connection: &'a Arc<Connection>, decoding: &'a Decoding<'a>) -> Scope<'a> {
        let mut scope = Scope::new(connection);
        scope.decoding = Some(decoding);
        scope
    }

    /// Records that the outgoing message will be sent, so that dropping the scope does not release its
    /// handles.
    pub(crate) fn is_written(&self) {
        self.given.take();
    }
}

impl Names for Scope<'_> {
    fn give(&self, class: Class, object: Any) -> Result<u64> {
        if class == Class::Tensor && !self.connection.is_server() {
            return Err(not_here());
        }
        let handle = self.connection.handles_locked().give(class, object, false)?;
        self.given.borrow_mut().push(handle);
        Ok(handle)
    }

    fn theirs(&self, object: &ObjectRef) -> Result<Option<u64>> {
        match (self.connection.proxies.find)(object) {
            Some((connection, handle)) if Arc::ptr_eq(&connection, self.connection) => Ok(Some(handle)),
            // The peer can call functions and modules of another session through this process, which can call them.
            Some(_) if matches!(object.type_key(), "rpc.Tensor" | "rpc.Object") => {
                bail!("ValueError", "this {} belongs to another session: copy it", object.type_key())
            }
            _ => Ok(None),
        }
    }

    fn proxy(&self, given: Given) -> Result<Any> {
        (self.connection.proxies.create)(self.connection, given)
    }

    fn look(&self) -> Result<()> {
        self.decoding.map_or(Ok(()), |decoding| self.connection.look(decoding))
    }

    fn own(&self, handle: u64) -> Result<Any> {
        let named = self.connection.named(handle)?;
        if named.lent {
            bail!(
                "ValueError",
                "cannot pass on a tensor that is borrowed for one call, which can only be read and written during it: copy it"
            );
        }
        Ok(named.object)
    }

    fn lend(&self, view: &TensorView<'_>) -> Result<u64> {
        if !self.connection.is_server() {
            return Err(not_here());
        }
        // SAFETY: `view` is valid for the call to which this scope belongs, and the scope does not end before the table and all
        // transfers have released the tensor (`drop`). No other code obtains it, since `own` refuses borrowed tensors.
        let tensor = unsafe { loan::tensor(view) }?;
        let handle =
            self.connection.handles_locked().give(Class::Tensor, Any::from(tensor.into_object()), true)?;
        self.loans.borrow_mut().push(handle);
        Ok(handle)
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        for handle in std::mem::take(self.given.get_mut()) {
            // An object without other references is dropped after the table is unlocked.
            let released = self.connection.handles_locked().release(handle, 1);
            drop(released);
        }
        for handle in std::mem::take(self.loans.get_mut()) {
            let lent = self.connection.handles_locked().end_loan(handle);
            // Another thread may be reading the tensor for a transfer, or writing to it for one that is aborted here. Nothing
            // else can hold a reference.
            while lent.as_ref().and_then(Any::as_object).is_some_and(|object| object.use_count() > 1) {
                self.connection.end_uploads_to(handle);
                std::thread::sleep(std::time::Duration::from_micros(20));
            }
        }
    }
}

fn not_here() -> Error {
    error!(
        "TypeError",
        "this tensor is in the memory of this process: copy it to the remote end first, with `session.tensor(..)`"
    )
}
