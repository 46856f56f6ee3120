//! Execution of calls that arrive from the peer.

use std::ffi::{c_int, c_void};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use anyfn::abi::TVMFFIEnvRegisterCAPI;

use super::*;

/// Callback for `check_signals`. It raises an error if this thread runs an incoming call that the peer has
/// cancelled.
extern "C" fn check_cancelled() -> c_int {
    // A thread that is exiting may still call this.
    let cancelled = CURRENT.try_with(|calls| {
        let calls = calls.try_borrow().ok()?;
        Some(calls.last()?.state.cancelled.load(Ordering::Relaxed))
    });
    if !matches!(cancelled, Ok(Some(true))) {
        return 0;
    }
    error!("CancelledError", "the peer no longer waits for the result").raise();
    -1
}

/// Registers [`check_cancelled`] with `check_signals`, once per process.
pub(super) fn watch_cancelled() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let check = check_cancelled as extern "C" fn() -> c_int;
        // SAFETY: the name is a C string, and the function has the type that belongs to it. A runtime that does not know the name
        // fails and leaves an error; the hook is then never called.
        if unsafe { TVMFFIEnvRegisterCAPI(c"AnyfnCheckCancelled".as_ptr(), check as *mut c_void) } != 0 {
            drop(Error::take_raised());
        }
    });
}

/// Runs `body` and converts a panic to an error, so that the caller still removes the call from this thread's
/// stack of running calls.
fn contained(body: impl FnOnce() -> Result<Any>) -> Result<Any> {
    panic::catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(error!("InternalError", "a service of the session panicked")))
}

/// Length in bytes to which each string of an error is truncated if the error does not fit into a message.
const ERROR_TEXT: usize = 1024;

impl Connection {
    pub(super) fn execute(self: &Arc<Self>, call: Incoming) {
        let Incoming { asked: IncomingCall { id, depth, target, args }, state } = call;
        let me = Arc::as_ptr(self).addr();
        // The depth in a call is what the peer claims; the nesting on this thread's stack is counted here.
        let nested = CURRENT.with_borrow(|calls| calls.iter().filter(|call| call.connection == me).count());
        let serving = Serving { connection: me, id, depth, state: state.clone() };
        CURRENT.with_borrow_mut(|calls| calls.push(serving));
        let result = if state.cancelled.load(Ordering::Relaxed) {
            Err(error!("InterruptedError", "the call was cancelled before it began"))
        } else if nested >= usize::from(CALLS_MAX) {
            Err(error!("RecursionError", "calls and callbacks nest deeper than {CALLS_MAX}"))
        } else {
            with_timeout(None, || match &target {
                Callee::Function(function) => function.call_views(Any::as_views(&args)),
                Callee::Service(code) => match &self.service {
                    Some(service) => contained(|| service.call(self, id, *code, Any::as_views(&args))),
                    None => Err(error!("PermissionError", "this end of the session offers no services")),
                },
            })
        };
        drop((args, target));
        // This precedes the end of the call: writing a large result checks whether the caller still waits for it.
        let result = result.and_then(|value| self.written(&value));
        drop(CURRENT.with_borrow_mut(Vec::pop));
        {
            let mut all = lock(&self.state);
            drop(state);
            all.unused = all.running.remove(&id).and_then(|mut ended| {
                *Arc::get_mut(&mut ended)? = Running::default();
                Some(ended)
            });
            all.has_worked = true;
        }
        // An error here means that the connection is over, of which all waiting threads are notified.
        let _ = match result {
            Ok(payload) => {
                let sent = self.send(FrameKind::Return, id, &payload);
                give_back(payload);
                sent
            }
            Err(error) => self.send(FrameKind::Error, id, &self.written_error(&error)),
        };
    }

    pub(super) fn written(self: &Arc<Self>, value: &Any) -> Result<Vec<u8>> {
        let scope = Scope::new(self);
        let mut writer = Writer::new(&scope, spare(), self.wire);
        writer.one(&value.as_view())?;
        scope.is_written();
        Ok(writer.out)
    }

    pub(super) fn written_error(self: &Arc<Self>, error: &Error) -> Vec<u8> {
        let scope = Scope::new(self);
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
            Ok(payload) => self.push_reply(&mut lock(&self.state), (FrameKind::Return, id, payload)),
            Err(error) => self.reply_error(id, &error),
        }
    }

    pub(super) fn reply_error(self: &Arc<Self>, id: u64, error: &Error) {
        let payload = self.written_error(error);
        self.push_reply(&mut lock(&self.state), (FrameKind::Error, id, payload));
    }

    /// Sends an error as the reply to a call that will not run.
    pub(super) fn fail(self: &Arc<Self>, id: u64, error: &Error) {
        lock(&self.state).running.remove(&id);
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
