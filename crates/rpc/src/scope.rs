//! The handles of a session, as a message that is written or read sees them.

use std::cell::RefCell;
use std::sync::Arc;

use anyfn::{Any, Error, ObjectRef, Result, TensorView, bail, error};

use crate::connection::{Connection, Decoding};
use crate::value::{Class, Given, Names};
use crate::{loan, remote};

/// The handles, for one message; ends the loans of its tensors when dropped.
pub(crate) struct Scope<'a> {
    connection: &'a Arc<Connection>,
    loans: RefCell<Vec<u64>>,
    /// Handles in a message that is being written.
    given: RefCell<Vec<u64>>,
    /// Set for a message that is read.
    decoding: Option<&'a Decoding<'a>>,
}

impl<'a> Scope<'a> {
    /// For a message that is written. Say with [`Scope::is_written`] that it is complete; else its handles are taken back.
    pub(crate) fn new(connection: &'a Arc<Connection>) -> Scope<'a> {
        Scope { connection, loans: RefCell::default(), given: RefCell::default(), decoding: None }
    }

    /// For a message that is read.
    pub(crate) fn of_read(connection: &'a Arc<Connection>, decoding: &'a Decoding<'a>) -> Scope<'a> {
        let mut scope = Scope::new(connection);
        scope.decoding = Some(decoding);
        scope
    }

    /// The message that was written will be sent.
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
        match remote::stands_for(object) {
            Some((connection, handle)) if Arc::ptr_eq(&connection, self.connection) => Ok(Some(handle)),
            // Functions and modules of another session can be called from here, and so from there by way of here.
            Some(_) if matches!(object.type_key(), "rpc.Tensor" | "rpc.Object") => {
                bail!("ValueError", "this {} belongs to another session: copy it", object.type_key())
            }
            _ => Ok(None),
        }
    }

    fn proxy(&self, given: Given) -> Result<Any> {
        remote::proxy(self.connection, given)
    }

    fn look(&self) -> Result<()> {
        self.decoding.map_or(Ok(()), |decoding| self.connection.look(decoding))
    }

    fn own(&self, handle: u64) -> Result<Any> {
        let named = self.connection.named(handle)?;
        if named.lent {
            bail!(
                "ValueError",
                "a tensor that was lent for one call can be read and written during it, and not be passed on: copy it"
            );
        }
        Ok(named.object)
    }

    fn lend(&self, view: &TensorView<'_>) -> Result<u64> {
        if !self.connection.is_server() {
            return Err(not_here());
        }
        // SAFETY: `view` lives for the call whose scope this is, and the scope does not end before the table and all transfers have let
        // go of the tensor (`drop`); nobody else gets it, since `own` refuses what is lent.
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
            // The object, if nobody holds it, goes when the table is unlocked.
            let released = self.connection.handles_locked().release(handle, 1);
            drop(released);
        }
        for handle in std::mem::take(self.loans.get_mut()) {
            let lent = self.connection.handles_locked().end_loan(handle);
            // A transfer out of it may be in progress on another thread, or one into it, which is given up; nothing else can hold it.
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
        "this tensor is in the memory of this process: copy it to the other side first, by `session.tensor(..)`"
    )
}
