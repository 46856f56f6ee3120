//! Execution and answering of calls that arrive from the peer.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use anyfn::{Any, Error, PackedFunc, Result, bail, error};

use super::current::{self, Running, Serving};
use super::scope::Scope;
use super::table::{Callee, Incoming, ROOT, Request, Step};
use super::{CALLS_MAX, Endpoint};
use crate::frame::FrameKind;
use crate::value::{Wire, Writer};

/// Runs `body` and converts a panic to an error, so that the call is still removed from this
/// thread's stack of running calls. Without the standard library, a panic ends the program.
fn contained(body: impl FnOnce() -> Result<Any>) -> Result<Any> {
    #[cfg(feature = "std")]
    return std::panic::catch_unwind(core::panic::AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(error!("InternalError", "a service of the session panicked")));
    #[cfg(not(feature = "std"))]
    return body();
}

/// Length in bytes to which each string of an error is truncated if the error does not fit into a message.
const ERROR_TEXT: usize = 1024;

/// Call that has arrived from the peer, for an event loop to run or to answer.
///
/// A call that is dropped without an answer is answered by an error.
pub struct IncomingCall {
    endpoint: Arc<Endpoint>,
    /// Accepted call. `None` once the call has been run or answered, or an [`Answer`] has been
    /// created for it.
    call: Option<Incoming>,
}

impl IncomingCall {
    /// Returns the function of this end that the peer calls, or `None` if the peer calls a service.
    pub fn function(&self) -> Option<&PackedFunc> {
        match &self.call.as_ref()?.request.target {
            Callee::Function(function) => Some(function),
            Callee::Service(_) => None,
        }
    }

    /// Returns the arguments of the call.
    pub fn args(&self) -> &[Any] {
        self.call.as_ref().map_or(&[], |call| &call.request.args)
    }

    /// Returns true if the peer no longer waits for the call.
    pub fn is_cancelled(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.state.cancelled.load(Ordering::Relaxed))
    }

    /// Runs the function or service, and answers the call with its result, unless the function calls [`answer_later`].
    pub fn run(mut self) {
        if let Some(call) = self.call.take() {
            self.endpoint.execute(call);
        }
    }

    /// Returns an [`Answer`] with which the call can be answered later, instead of running its
    /// function.
    pub fn answer_later(mut self) -> Option<Answer> {
        let Incoming { request: Request { id, depth, .. }, state } = self.call.take()?;
        Some(Answer { endpoint: self.endpoint.clone(), id, depth, state: Some(state) })
    }

    /// Answers the call with `result`, instead of running its function.
    pub fn answer(self, result: Result<Any>) {
        if let Some(answer) = self.answer_later() {
            answer.send(result);
        }
    }
}

impl Drop for IncomingCall {
    fn drop(&mut self) {
        if let Some(Incoming { request, state }) = self.call.take() {
            self.endpoint.answer(request.id, state, Err(unanswered()));
        }
    }
}

/// Right and duty to answer a call from the peer later, on any thread.
///
/// If it is dropped, the call is answered by an error. If it is dropped before the function returns that has obtained it, the
/// function answers by returning.
pub struct Answer {
    endpoint: Arc<Endpoint>,
    id: u64,
    depth: u16,
    /// State of the call at this end. `None` once the call has been answered.
    state: Option<Arc<Running>>,
}

impl Answer {
    /// Returns the endpoint at which the call has arrived.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Sends the result of the call. Does nothing if the session has ended.
    pub fn send(mut self, result: Result<Any>) {
        if let Some(state) = self.state.take() {
            self.endpoint.answer(self.id, state, result);
        }
    }

    /// Returns true if the peer no longer waits for the call.
    pub fn is_cancelled(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.cancelled.load(Ordering::Relaxed))
    }

    /// Runs `body` as a part of the call. Calls that `body` makes to the peer are callbacks of the
    /// call, and [`is_cancelled`] reports whether the peer has cancelled the call.
    ///
    /// [`is_cancelled`]: super::is_cancelled
    pub fn within<T>(&self, body: impl FnOnce() -> T) -> T {
        let Some(state) = self.state.clone() else { return body() };
        let _entered = Entered::new(&self.endpoint, self.id, self.depth, state);
        body()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let Some(state) = self.state.take() else { return };
        let still_runs = current::with(|calls| {
            let call = calls.iter_mut().find(|call| call.answers_later && Arc::ptr_eq(&call.state, &state));
            call.map(|call| call.answers_later = false).is_some()
        });
        // The function answers when it returns.
        if still_runs != Some(true) {
            self.endpoint.answer(self.id, state, Err(unanswered()));
        }
    }
}

#[cold]
fn unanswered() -> Error {
    error!("RuntimeError", "the call was abandoned without an answer")
}

/// Returns an [`Answer`] with which the call from the peer that this thread is running can be
/// answered later. The value that the running function then returns is ignored, but an error that
/// it returns is the answer.
///
/// # Errors
/// Returns `RuntimeError` if this thread is running no call of a peer, or if the function has called this before.
pub fn answer_later() -> Result<Answer> {
    let answer = current::with(|calls| {
        let call = calls.last_mut().filter(|call| !call.answers_later)?;
        call.answers_later = true;
        Some((call.endpoint.clone(), call.id, call.depth, call.state.clone()))
    });
    match answer.flatten() {
        Some((endpoint, id, depth, state)) => Ok(Answer { endpoint, id, depth, state: Some(state) }),
        None => bail!(
            "RuntimeError",
            "cannot answer later: no call of a peer that waits for its answer runs on this thread"
        ),
    }
}

/// Guard that exists while this thread runs a call from the peer. It is also dropped if the call unwinds.
struct Entered;

impl Entered {
    fn new(endpoint: &Arc<Endpoint>, id: u64, depth: u16, state: Arc<Running>) -> Entered {
        let serving = Serving { endpoint: endpoint.clone(), id, depth, state, answers_later: false };
        current::with(|calls| calls.push(serving));
        Entered
    }

    /// Ends the call on this thread. Returns true if an [`Answer`] will answer the call, instead of
    /// the return of the function.
    fn leave(self) -> bool {
        core::mem::forget(self);
        let ended = current::with(Vec::pop).flatten();
        ended.is_some_and(|call| call.answers_later)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let ended = current::with(Vec::pop);
        drop(ended);
    }
}

impl Endpoint {
    /// Removes the next call from the peer from the queue and returns it, or `None` if the queue is
    /// empty. The caller runs the call or answers it. Event loops use this function; with a driver
    /// that can block, the waiting threads run the calls.
    pub fn next_call(self: &Arc<Self>) -> Option<IncomingCall> {
        let mut table = self.table();
        let Step::Run(call) = table.step(ROOT, None) else { return None };
        table.has_run(ROOT);
        drop(table);
        Some(IncomingCall { endpoint: self.clone(), call: Some(call) })
    }

    /// Runs the next queued call from the peer and answers it, unless its function calls
    /// [`answer_later`]. Returns false if no call is queued.
    pub fn run_next(self: &Arc<Self>) -> bool {
        self.next_call().map(IncomingCall::run).is_some()
    }

    /// Runs an incoming call and answers it, unless its function calls [`answer_later`].
    pub fn execute(self: &Arc<Self>, call: Incoming) {
        let Incoming { request: Request { id, depth, target, args }, state } = call;
        // The depth in a call is what the peer claims; the nesting on this thread's stack is counted here.
        let nested =
            current::with(|calls| calls.iter().filter(|call| Arc::ptr_eq(&call.endpoint, self)).count());
        let entered = Entered::new(self, id, depth, state.clone());
        let result = if state.cancelled.load(Ordering::Relaxed) {
            Err(error!("InterruptedError", "the call was cancelled before it began"))
        } else if nested.is_some_and(|nested| nested >= usize::from(CALLS_MAX)) {
            Err(error!("RecursionError", "calls and callbacks nest deeper than {CALLS_MAX}"))
        } else {
            match &target {
                Callee::Function(function) => function.call_views(Any::as_views(&args)),
                Callee::Service(code) => match &self.service {
                    Some(service) => contained(|| service.call(self, id, *code, Any::as_views(&args))),
                    None => Err(error!("PermissionError", "this end of the session offers no services")),
                },
            }
        };
        drop((args, target));
        // This precedes the end of the call: writing a large result checks whether the caller still waits for it.
        let result = result.and_then(|value| self.written(&value));
        if entered.leave() && result.is_ok() {
            return;
        }
        self.send_answer(id, state, result);
    }

    /// Answers an incoming call that has not been run, or that its function has left unanswered.
    fn answer(self: &Arc<Self>, id: u64, state: Arc<Running>, result: Result<Any>) {
        let result = result.and_then(|value| self.written(&value));
        self.send_answer(id, state, result);
    }

    /// Ends an incoming call and sends its answer, unless it has been answered before.
    fn send_answer(self: &Arc<Self>, id: u64, state: Arc<Running>, result: Result<Vec<u8>>) {
        if !self.table().finish_incoming(id, state) {
            return;
        }
        // An error here means that the session is over, of which all waiting threads are notified.
        let _ = match result {
            Ok(payload) => {
                let sent = self.send(FrameKind::Return, id, &payload);
                current::give_back(payload);
                sent
            }
            Err(error) => self.send(FrameKind::Error, id, &self.written_error(&error)),
        };
    }

    pub(super) fn written(self: &Arc<Self>, value: &Any) -> Result<Vec<u8>> {
        let scope = Scope::new(self, true);
        let mut writer = Writer::new(&scope, current::spare(), self.wire);
        writer.one(&value.as_view())?;
        scope.is_written();
        Ok(writer.out)
    }

    pub(super) fn written_error(self: &Arc<Self>, error: &Error) -> Vec<u8> {
        let scope = Scope::new(self, true);
        let mut writer = Writer::new(&scope, Vec::new(), self.wire);
        if writer.error(error).is_ok() {
            return writer.out;
        }
        // The strings of the error are too long for a message.
        let shown = |text: &str| text[..text.floor_char_boundary(ERROR_TEXT)].to_owned();
        let mut writer = Writer::new(&scope, Vec::new(), Wire { longest: usize::MAX, ..self.wire });
        let _ = writer.error(&Error::untraced(&shown(error.kind()), &shown(error.message())));
        writer.out
    }

    /// Queues the reply to the call `id`. A thread that reads from the socket must use this function, because
    /// it must not block on sending.
    pub(super) fn reply(self: &Arc<Self>, id: u64, result: Result<Any>) {
        match result.and_then(|value| self.written(&value)) {
            Ok(payload) => self.push_reply(&mut self.table(), (FrameKind::Return, id, payload)),
            Err(error) => self.reply_error(id, &error),
        }
    }

    pub(super) fn reply_error(self: &Arc<Self>, id: u64, error: &Error) {
        let payload = self.written_error(error);
        self.push_reply(&mut self.table(), (FrameKind::Error, id, payload));
    }

    /// Sends an error as the reply to a call that will not run.
    pub fn fail(self: &Arc<Self>, id: u64, error: &Error) {
        self.table().running.remove(&id);
        self.reply_error(id, error);
        let _ = self.flush_replies();
    }

    /// Marks an error as raised by the peer, by appending a line with the peer's name to the error's
    /// backtrace.
    pub(super) fn as_remote(&self, error: Error) -> Error {
        let trace = error.backtrace();
        error.replace_backtrace(&format!("{trace}  File \"{}\", in <remote>\n", self.peer));
        error
    }
}
