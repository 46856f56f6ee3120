//! Tracking of the handles in one message.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;

use anyfn::{Any, Error, ObjectRef, Result, TensorView, bail, error};

use super::Endpoint;
use super::dispatch::Decoding;
use crate::loan;
use crate::sync::pause;
use crate::value::{Class, Given, Names};

/// Scope of one message, which records the handles in it. Dropping the scope invalidates the handles of
/// tensors that the message passes only for the duration of a call.
pub(super) struct Scope<'a> {
    endpoint: &'a Arc<Endpoint>,
    lends: bool,
    loans: RefCell<Vec<u64>>,
    /// Handles of local objects that the outgoing message contains.
    given: RefCell<Vec<u64>>,
    /// Decoding state of the received message; `None` for an outgoing message.
    decoding: Option<&'a Decoding<'a>>,
}

impl<'a> Scope<'a> {
    /// Creates the scope of an outgoing message. Dropping the scope releases the handles in the message,
    /// unless [`Scope::is_written`] has recorded that the message will be sent.
    /// If `lends` is false, the message cannot contain tensors that are borrowed for the duration of a call.
    pub(super) fn new(endpoint: &'a Arc<Endpoint>, lends: bool) -> Scope<'a> {
        Scope { endpoint, lends, loans: RefCell::default(), given: RefCell::default(), decoding: None }
    }

    /// Creates the scope of a received message.
    pub(super) fn of_read(endpoint: &'a Arc<Endpoint>, decoding: &'a Decoding<'a>) -> Scope<'a> {
        let mut scope = Scope::new(endpoint, false);
        scope.decoding = Some(decoding);
        scope
    }

    /// Records that the outgoing message will be sent, so that dropping the scope does not release its
    /// handles.
    pub(super) fn is_written(&self) {
        self.given.take();
    }
}

impl Names for Scope<'_> {
    fn give(&self, class: Class, object: Any) -> Result<u64> {
        if class == Class::Tensor && !self.endpoint.is_server() {
            return Err(not_here());
        }
        let handle = self.endpoint.handles.lock().give(class, object, false)?;
        self.given.borrow_mut().push(handle);
        Ok(handle)
    }

    fn theirs(&self, object: &ObjectRef) -> Result<Option<u64>> {
        match (self.endpoint.proxies.find)(object) {
            Some((endpoint, handle)) if Arc::ptr_eq(&endpoint, self.endpoint) => Ok(Some(handle)),
            // The peer can call functions and modules of another session through this process, which can call them.
            Some(_) if matches!(object.type_key(), "rpc.Tensor" | "rpc.Object") => {
                bail!("ValueError", "this {} belongs to another session: copy it", object.type_key())
            }
            _ => Ok(None),
        }
    }

    fn proxy(&self, given: Given) -> Result<Any> {
        (self.endpoint.proxies.create)(self.endpoint, given)
    }

    fn look(&self) -> Result<()> {
        self.decoding.map_or(Ok(()), |decoding| self.endpoint.look(decoding))
    }

    fn own(&self, handle: u64) -> Result<Any> {
        let named = self.endpoint.named(handle)?;
        if named.lent {
            bail!(
                "ValueError",
                "cannot pass on a tensor that is borrowed for one call, which can only be read and written during it: copy it"
            );
        }
        Ok(named.object)
    }

    fn lend(&self, view: &TensorView<'_>) -> Result<u64> {
        if !self.endpoint.is_server() {
            return Err(not_here());
        }
        if !self.lends {
            bail!(
                "TypeError",
                "cannot lend the memory of a tensor to a call that nobody waits for: pass a tensor object, or wait for the call"
            );
        }
        // SAFETY: `view` is valid for the call to which this scope belongs, and the scope does not end before the table and all
        // transfers have released the tensor (`drop`). No other code obtains it, since `own` refuses borrowed tensors.
        let tensor = unsafe { loan::tensor(view) }?;
        let handle = self.endpoint.handles.lock().give(Class::Tensor, Any::from(tensor.into_object()), true)?;
        self.loans.borrow_mut().push(handle);
        Ok(handle)
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        for handle in core::mem::take(self.given.get_mut()) {
            // An object without other references is dropped after the table is unlocked.
            let released = self.endpoint.handles.lock().release(handle, 1);
            drop(released);
        }
        for handle in core::mem::take(self.loans.get_mut()) {
            let lent = self.endpoint.handles.lock().end_loan(handle);
            // Another thread may be reading the tensor for a transfer, or writing to it for one that is aborted here. Nothing
            // else can hold a reference.
            while lent.as_ref().and_then(Any::as_object).is_some_and(|object| object.use_count() > 1) {
                self.endpoint.end_uploads_to(handle);
                pause();
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
