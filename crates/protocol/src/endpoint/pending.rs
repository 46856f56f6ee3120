//! Calls whose results are taken later.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use anyfn::{Any, AnyView, IntoArgs, PackedFunc, Result, bail};

use super::scope::Scope;
use super::table::{Destination, Step};
use super::{Endpoint, Target, current};
use crate::code;

/// Conversion of a call's result before the caller receives the result.
type Convert = Box<dyn FnOnce(&Arc<Endpoint>, Any) -> Result<Any> + Send>;

/// Call to the peer whose result has not been taken.
///
/// The result arrives by [`Endpoint::receive`], and is taken by [`PendingCall::take`], delivered to a callback by
/// [`PendingCall::then`], or awaited: the call is a [`Future`]. Dropping the call cancels it.
pub struct PendingCall {
    endpoint: Arc<Endpoint>,
    id: u64,
    convert: Option<Convert>,
    /// True once the result has been taken or the call has been cancelled.
    is_over: bool,
}

impl PendingCall {
    /// Takes the result if it has arrived. Returns `None` before that, and after the result has been taken.
    pub fn take(&mut self) -> Option<Result<Any>> {
        if self.is_over {
            return None;
        }
        let mut table = self.endpoint.table();
        let Step::Done(result) = table.step(self.id, None) else { return None };
        self.is_over = true;
        self.endpoint.leave(table, self.id);
        Some(self.converted(result))
    }

    fn converted(&mut self, result: Result<Any>) -> Result<Any> {
        match self.convert.take() {
            Some(convert) => result.and_then(|value| convert(&self.endpoint, value)),
            None => result,
        }
    }

    /// Calls `done` with the result when the result arrives. The call can then no longer be
    /// cancelled. `done` runs within the [`Endpoint::receive`] or [`Endpoint::end`] that delivers
    /// the result, or immediately if the result has arrived already.
    pub fn then(mut self, done: impl FnOnce(Result<Any>) + Send + 'static) {
        self.is_over = true;
        let (endpoint, convert) = (self.endpoint.clone(), self.convert.take());
        let whole = move |result: Result<Any>| match convert {
            Some(convert) => done(result.and_then(|value| convert(&endpoint, value))),
            None => done(result),
        };
        let is_done = self.endpoint.table().on_done(self.id, Box::new(whole));
        if is_done {
            self.endpoint.run_completions();
        }
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// Returns the error of the call, and `RuntimeError` if the endpoint has no driver that can block.
    pub fn wait(mut self) -> Result<Any> {
        let Some(driver) = &self.endpoint.driver else { return Err(self.endpoint.cannot_wait()) };
        let deadline = driver.deadline();
        self.endpoint.table().has_thread(self.id);
        self.is_over = true;
        let result = driver.wait(&self.endpoint, self.id, deadline, None);
        self.converted(result)
    }

    /// Returns the number of bytes that a transfer from the peer has received, and the total. Both are 0 for other calls.
    pub fn transferred(&self) -> (usize, usize) {
        self.endpoint.table().transferred(self.id)
    }

    /// Cancels the call: notifies the peer that this end no longer waits for the result, and
    /// discards a result that still arrives. The function that the peer runs can check for this.
    pub fn cancel(self) {
        drop(self);
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let table = self.endpoint.table();
        let sends = !table.is_done(self.id) && table.ended().is_none();
        self.endpoint.leave(table, self.id);
        if sends {
            let _ = self.endpoint.cancel(self.id);
        }
    }
}

impl Future for PendingCall {
    type Output = Result<Any>;

    /// Returns the result of the call when it has arrived.
    ///
    /// # Panics
    /// Panics if the result has been taken before, like other futures that are polled after they have completed.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Any>> {
        assert!(!self.is_over, "the result of this call has been taken");
        // Set before the check, so that no result is missed that arrives in between.
        self.endpoint.table().sleeps(self.id, Some(context.waker().clone()));
        self.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Endpoint {
    /// Starts a call of a remote function, and returns without waiting for the result. `function`
    /// is a proxy that this session has received. If this thread is running a call from the peer,
    /// the started call is a callback of that call.
    ///
    /// # Errors
    /// Returns `TypeError` if `function` is not a proxy of this session or an argument cannot be sent, and `ConnectionError` if the
    /// session has ended.
    pub fn start(self: &Arc<Self>, function: &PackedFunc, args: impl IntoArgs) -> Result<PendingCall> {
        match (self.proxies.find)(function.as_object()) {
            Some((endpoint, handle)) if Arc::ptr_eq(&endpoint, self) => {
                args.with_views(|views| self.start_with(&Target::Handle(handle), views, &[], None))
            }
            _ => bail!("TypeError", "{}: the function does not belong to the peer of this session", self.peer),
        }
    }

    /// Starts a call of a service, one of the constants in [`code`], and returns without waiting
    /// for the result. `bytes` are sent after the arguments. If `length` is not `None`, the peer
    /// sends that many bytes before its result, and these bytes become the result of the call.
    ///
    /// # Errors
    /// Returns `TypeError` or `ValueError` if an argument cannot be sent, and `ConnectionError` if the session has ended.
    pub fn start_service(
        self: &Arc<Self>,
        service: u16,
        args: impl IntoArgs,
        bytes: &[u8],
        length: Option<usize>,
    ) -> Result<PendingCall> {
        args.with_views(|views| self.start_with(&Target::Service(service), views, bytes, length))
    }

    /// Starts to look up a global function of the peer. The result is a proxy for the function.
    ///
    /// # Errors
    /// Returns `ConnectionError` if the session has ended.
    pub fn start_lookup(self: &Arc<Self>, name: &str) -> Result<PendingCall> {
        let mut call = self.start_service(code::GLOBAL, (name,), &[], None)?;
        let name = String::from(name);
        call.convert = Some(Box::new(move |endpoint, answer| {
            let describe = endpoint.proxies.describe;
            match describe(endpoint, &answer)? {
                Some(function) => Any::new(function),
                None => bail!("ValueError", "{}: no function is named {name:?}", endpoint.peer),
            }
        }));
        Ok(call)
    }

    fn start_with(
        self: &Arc<Self>,
        target: &Target,
        args: &[AnyView<'_>],
        bytes: &[u8],
        length: Option<usize>,
    ) -> Result<PendingCall> {
        let scope = Scope::new(self, false);
        let payload = self.written_call(&scope, target, args)?;
        let id = self.table().begin(length.map(Destination::owned), false)?;
        let call = PendingCall { endpoint: self.clone(), id, convert: None, is_over: false };
        self.send_call(id, &payload, bytes, None)?;
        current::give_back(payload);
        Ok(call)
    }
}
