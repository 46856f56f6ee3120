//! Tests that signals and cancellation interrupt the writing and reading of a long message.

mod hand;

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once, mpsc};
use std::time::Duration;

use anyfn::abi::TVMFFIEnvRegisterCAPI;
use anyfn::{Any, Error, List, PackedFunc, Ref, registry};
use anyfn_loader as _;
use anyfn_reflect as _;
use anyfn_rpc::Session;
use anyfn_rpc::policy::Policy;
use anyfn_runtime as _;
use hand::*;

/// Number of elements of a list that takes a noticeable time to write and read. Signals are checked every few
/// thousand elements.
const MANY: usize = 1 << 20;

/// Function that runs at each check for signals. It returns true to simulate a signal.
type AtLook = Box<dyn FnMut() -> bool>;

thread_local! {
    /// Function that this thread runs at each check for signals; `None` if no signal is simulated.
    static AT_LOOK: RefCell<Option<AtLook>> = const { RefCell::new(None) };
    static LOOKS: Cell<usize> = const { Cell::new(0) };
}

/// Replacement for Python's `PyErr_CheckSignals`, which simulates signals.
extern "C" fn check() -> c_int {
    LOOKS.set(LOOKS.get() + 1);
    // The function is removed while it runs, because it may cause further checks.
    let Some(mut at_look) = AT_LOOK.with_borrow_mut(Option::take) else { return 0 };
    let is_signal = at_look();
    if !is_signal {
        AT_LOOK.set(Some(at_look));
    } else {
        Error::new("KeyboardInterrupt", "Ctrl-C").raise();
    }
    -c_int::from(is_signal)
}

extern "C" fn ensure() -> c_int {
    0
}

extern "C" fn release(_: c_int) {}

/// Registers replacements for functions of Python's C API, through which this program simulates
/// signals.
fn have_signals() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let functions = [
            (c"PyGILState_Ensure", ensure as *mut c_void),
            (c"PyGILState_Release", release as *mut c_void),
            (c"PyErr_CheckSignals", check as *mut c_void),
        ];
        for (name, function) in functions {
            // SAFETY: the name is a C string, and the function has the type that belongs to the name.
            assert_eq!(unsafe { TVMFFIEnvRegisterCAPI(name.as_ptr(), function) }, 0);
        }
    });
}

fn at_look(at_look: impl FnMut() -> bool + 'static) {
    LOOKS.set(0);
    AT_LOOK.set(Some(Box::new(at_look)));
}

/// Simulates a signal at the `number`-th check for signals on this thread.
fn interrupt_at(number: usize) {
    at_look(move || LOOKS.get() >= number);
}

fn many() -> Any {
    Any::new(List::<Any>::from_vec(vec![Any::NONE; MANY]).unwrap()).unwrap()
}

fn register(name: &str, function: PackedFunc) {
    registry::register(name).overriding().set(&function).unwrap();
}

#[test]
fn a_signal_is_heard_while_arguments_are_written() {
    have_signals();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let count = PackedFunc::new(move |args| {
        counted.fetch_add(1, Ordering::Relaxed);
        Any::new(args.len())
    });
    register("test.interrupts.count", count);
    let session = registry::get("rpc.local").unwrap().call(()).unwrap().get::<Ref<Session>>().unwrap();
    let count = session.get_function("test.interrupts.count").unwrap();
    let many = many();
    for number in [1, 2, MANY / 4096 - 1] {
        interrupt_at(number);
        let error = count.call((&many, 1)).unwrap_err();
        assert_eq!((error.kind(), LOOKS.get()), ("KeyboardInterrupt", number));
        // Nothing was sent.
        assert_eq!(calls.load(Ordering::Relaxed), 0);
    }
    assert_eq!(count.call((&many, 1)).unwrap().get::<i64>().unwrap(), 2);
}

#[test]
fn a_signal_is_heard_while_a_result_is_read() {
    have_signals();
    // The checks of the serving thread show how much it has written.
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    let result = PackedFunc::new(|_| {
        at_look(|| {
            WRITTEN.fetch_add(1, Ordering::Relaxed);
            false
        });
        Ok(many())
    });
    register("test.interrupts.many", result);
    let session = registry::get("rpc.local").unwrap().call(()).unwrap().get::<Ref<Session>>().unwrap();
    let result = session.get_function("test.interrupts.many").unwrap();
    // A few checks after everything has been written, this thread reads the data that has arrived.
    let all = MANY / 4096 - 1;
    let mut since = 0;
    at_look(move || {
        since += usize::from(WRITTEN.load(Ordering::Relaxed) >= all);
        since > 40
    });
    assert_eq!(result.call(()).unwrap_err().kind(), "KeyboardInterrupt");
    assert!(WRITTEN.load(Ordering::Relaxed) >= all);
    // The session continues to work.
    assert_eq!(result.call(()).unwrap().get::<List<Any>>().unwrap().len(), MANY);
}

fn policy() -> Policy {
    Policy { functions: vec!["test.interrupts.*".into()], handles: 10, ..Policy::closed() }
}

#[test]
fn a_cancellation_is_heard_while_a_result_is_written() {
    have_signals();
    let (started, has_started) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let channels = std::sync::Mutex::new(Some((started, goes)));
    let result = PackedFunc::new(move |_| {
        let (started, goes) = channels.lock().unwrap().take().expect("one call");
        let mut is_first = true;
        at_look(move || {
            if std::mem::take(&mut is_first) {
                started.send(()).unwrap();
                goes.recv_timeout(Duration::from_secs(60)).expect("the cancellation has been read");
            }
            false
        });
        Ok(many())
    });
    register("test.interrupts.writes", result);
    let (mut line, server) = greeted(policy());
    let writes = line.global(1, "test.interrupts.writes");
    line.send(&call(2, 0, 0, writes, &[]));
    has_started.recv_timeout(Duration::from_secs(60)).expect("the result is being written");
    line.send(&frame(CANCEL, 0, 2, b""));
    // Messages are read in order, so the cancellation has been read when this is answered.
    assert!(line.serves(3));
    go.send(()).unwrap();
    assert_eq!(line.answer(2).unwrap_err().0, "CancelledError");
    line.send(&frame(BYE, 0, 0, b"well"));
    assert!(server.join().unwrap().contains("well"));
}

/// Tests that the handles in a message are released if sending the message fails.
#[test]
fn handles_of_a_message_that_is_not_sent_are_taken_back() {
    let long = "x".repeat(Policy::closed().message_bytes);
    let result = PackedFunc::new(move |_| {
        let functions: Vec<Any> =
            (0..5).map(|_| Any::new(PackedFunc::new(|_| Ok(Any::NONE))).unwrap()).collect();
        Any::new((functions, &*long))
    });
    register("test.interrupts.too_long", result);
    let (mut line, server) = greeted(policy());
    let too_long = line.global(1, "test.interrupts.too_long");
    for round in 0..10 {
        line.send(&call(2, 0, 0, too_long, &[]));
        let (kind, message) = line.answer(2).unwrap_err();
        assert!(kind == "ValueError" && message.contains("message_bytes"), "round {round}: {kind}: {message}");
    }
    let mut tensors: Vec<u64> = (0..9).map(|_| line.empty(3, 16)).collect();
    tensors.dedup();
    assert_eq!(tensors.len(), 9);
    line.send(&frame(BYE, 0, 0, b"well"));
    assert!(server.join().unwrap().contains("well"));
}
