//! The handles of a session, as a message that is written or read sees them.

use std::cell::RefCell;
use std::sync::Arc;

use anyfn::{Any, Error, ObjectRef, Result, TensorView, bail, error};

use crate::connection::Connection;
use crate::value::{Class, Given, Names};
use crate::{loan, remote};

/// The handles, for one message; ends the loans of its tensors when dropped.
pub(crate) struct Scope<'a> {
    connection: &'a Arc<Connection>,
    loans: RefCell<Vec<u64>>,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(connection: &'a Arc<Connection>) -> Scope<'a> {
        Scope { connection, loans: RefCell::default() }
    }
}

impl Names for Scope<'_> {
    fn give(&self, class: Class, object: Any) -> Result<u64> {
        if class == Class::Tensor && !self.connection.is_server() {
            return Err(not_here());
        }
        self.connection.handles_locked().give(class, object, false)
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
        let tensor = loan::tensor(view)?;
        let handle =
            self.connection.handles_locked().give(Class::Tensor, Any::from(tensor.into_object()), true)?;
        self.loans.borrow_mut().push(handle);
        Ok(handle)
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
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
