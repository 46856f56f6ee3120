//! Running calls of the other side.

use std::ffi::{c_int, c_void};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use anyfn::abi::TVMFFIEnvRegisterCAPI;

use super::*;

/// For `check_signals` of code that a call of another process runs: an error is raised if that call was cancelled.
extern "C" fn check_cancelled() -> c_int {
    // A thread that ends may still be asked.
    let cancelled = CURRENT.try_with(|calls| {
        let calls = calls.try_borrow().ok()?;
        Some(calls.last()?.state.cancelled.load(Ordering::Relaxed))
    });
    if !matches!(cancelled, Ok(Some(true))) {
        return 0;
    }
    error!("CancelledError", "the other side no longer waits for the result").raise();
    -1
}

/// Lets `check_signals` ask; once for the process.
pub(super) fn watch_cancelled() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let check = check_cancelled as extern "C" fn() -> c_int;
        // SAFETY: a C string, and a function of the type that goes with the name. A runtime that does not know the name refuses it,
        // which leaves an error behind; then nothing asks.
        if unsafe { TVMFFIEnvRegisterCAPI(c"AnyfnCheckCancelled".as_ptr(), check as *mut c_void) } != 0 {
            drop(Error::take_raised());
        }
    });
}

/// A panic of `body` as an error, as it is with functions: what this thread has on record of its call has to be put in order.
fn contained(body: impl FnOnce() -> Result<Any>) -> Result<Any> {
    panic::catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(error!("InternalError", "a service of the session panicked")))
}

/// Bytes of each text of an error that is left when all of it is too long for a message.
const ERROR_TEXT: usize = 1024;

impl Connection {
    pub(super) fn execute(self: &Arc<Self>, call: Incoming) {
        let Incoming { asked: Asked { id, depth, target, args }, state } = call;
        let me = Arc::as_ptr(self).addr();
        // The depth in a call is what the other side says; this thread's stack is counted here.
        let nested = CURRENT.with_borrow(|calls| calls.iter().filter(|call| call.connection == me).count());
        let serving = Serving { connection: me, id, depth, state: state.clone() };
        CURRENT.with_borrow_mut(|calls| calls.push(serving));
        let result = if state.cancelled.load(Ordering::Relaxed) {
            Err(error!("InterruptedError", "cancelled before it began"))
        } else if nested >= usize::from(CALLS_MAX) {
            Err(error!("RecursionError", "calls and callbacks nest deeper than {CALLS_MAX}"))
        } else {
            with_timeout(None, || match &target {
                Callee::Function(function) => function.call_views(Any::as_views(&args)),
                Callee::Service(code) => match &self.service {
                    Some(service) => contained(|| service.call(self, id, *code, Any::as_views(&args))),
                    None => Err(error!("PermissionError", "this side offers no services")),
                },
            })
        };
        drop((args, target));
        // Before the call is over: writing a large result asks whether anybody still waits for it.
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
        // An error here means that the connection is over, which whoever waits hears.
        let _ = match result {
            Ok(payload) => {
                let sent = self.send(Kind::Return, id, &payload);
                give_back(payload);
                sent
            }
            Err(error) => self.send(Kind::Error, id, &self.written_error(&error)),
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
        // Texts that are too long for a message.
        let shown = |text: &str| text[..text.floor_char_boundary(ERROR_TEXT)].to_owned();
        let mut writer = Writer::new(&scope, Vec::new(), Wire { longest: usize::MAX, ..self.wire });
        let _ = writer.error(&Error::untraced(&shown(error.kind()), &shown(error.message())));
        writer.out
    }

    /// An answer that a reader gives, which must not wait.
    pub(super) fn reply(self: &Arc<Self>, id: u64, result: Result<Any>) {
        match result.and_then(|value| self.written(&value)) {
            Ok(payload) => self.push_reply(&mut lock(&self.state), (Kind::Return, id, payload)),
            Err(error) => self.reply_error(id, &error),
        }
    }

    pub(super) fn reply_error(self: &Arc<Self>, id: u64, error: &Error) {
        let payload = self.written_error(error);
        self.push_reply(&mut lock(&self.state), (Kind::Error, id, payload));
    }

    /// Answers a call that nobody runs.
    pub(super) fn fail(self: &Arc<Self>, id: u64, error: &Error) {
        lock(&self.state).running.remove(&id);
        self.reply_error(id, error);
        let _ = self.flush_replies();
    }

    /// An error that the other side has raised, with its trace behind a line that says where.
    pub(super) fn as_remote(&self, error: Error) -> Error {
        let trace = error.backtrace();
        error.replace_backtrace(&format!("{trace}  File \"{}\", in <remote>\n", self.peer));
        error
    }
}
