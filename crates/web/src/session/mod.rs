//! Sessions with other processes. The package moves the bytes between a `WebSocket` and the state machine of `anyfn_protocol`, runs
//! the calls that arrive, and receives the results of the calls that it has started (`web/session.js`).
//!
//! Reading order: [`Session`], [`Call`] (a call to the peer), [`Incoming`] (a call of the peer to a JavaScript function), `service`
//! (what a page that serves offers).

mod service;

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use anyfn::{
    Any, Args, Array, Bytes, Error, Map, Object, ObjectRef, PackedFunc, Ref, Result, TensorView, bail, error,
    register,
};
use anyfn_protocol::endpoint::{Endpoint, SessionLimits};
use anyfn_protocol::{
    Answer, Arrival, ClientOpening, Key, PendingCall, Refused, RemoteTensor, ServerOpening, code, described,
    stands_for,
};

use crate::host::{host_now, host_random};
use service::{Grant, Services};

/// Maximum size in bytes of a message on this side, which a page can hold.
const MESSAGE_MAX: usize = 1 << 28;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn random(bytes: &mut [u8]) -> Result<()> {
    if host_random(bytes.as_mut_ptr(), bytes.len()) != 0 {
        bail!(
            "RuntimeError",
            "this host has no random numbers that are fit for cryptography (`crypto.getRandomValues`)"
        );
    }
    Ok(())
}

fn now() -> Duration {
    Duration::try_from_secs_f64(host_now()).unwrap_or_default()
}

/// Gives the measurements of the runtime the clock of the host.
#[cfg(feature = "timing")]
pub(crate) fn set_clock() {
    anyfn_host::runtime::timing::set_clock(now);
}

enum State {
    Client(ClientOpening),
    Server(Box<Server>),
    Open(Arc<Endpoint>),
    Over,
}

/// Server's part of the beginning of a session.
struct Server {
    opening: ServerOpening,
    key: Option<Key>,
    grant: Grant,
}

/// One end of a session, from the first byte to the end.
#[derive(Object)]
#[object(key = "anyfn.web.Session", init = false, final)]
struct Session {
    /// Name of the peer, for error messages.
    peer: anyfn::String,
    #[field(skip)]
    state: Mutex<State>,
    /// Bytes to send that do not come from the endpoint.
    #[field(skip)]
    out: Mutex<Vec<u8>>,
    #[field(skip)]
    ready: Arc<Mutex<Vec<u64>>>,
    #[field(skip)]
    last: Mutex<u64>,
}

impl Session {
    fn new(peer: &str, state: State) -> Ref<Session> {
        Ref::new(Session {
            peer: peer.into(),
            state: Mutex::new(state),
            out: Mutex::default(),
            ready: Arc::default(),
            last: Mutex::new(0),
        })
    }

    fn endpoint(&self) -> Result<Arc<Endpoint>> {
        match &*lock(&self.state) {
            State::Open(endpoint) => Ok(endpoint.clone()),
            _ => bail!("ConnectionError", "the session is not open"),
        }
    }

    /// Returns a call whose result the package takes when [`ready`] has named it.
    fn call(&self, pending: PendingCall, is_function: bool) -> Ref<Call> {
        let mut last = lock(&self.last);
        *last += 1;
        let signal = Arc::new(Signal { ready: self.ready.clone(), number: *last });
        let call = Ref::new(Call {
            number: *last as i64,
            pending: Mutex::new(Some(pending)),
            result: Mutex::new(None),
            signal,
            is_function,
        });
        call.poll();
        call
    }
}

/// Names a call to the package when its result has arrived.
struct Signal {
    ready: Arc<Mutex<Vec<u64>>>,
    number: u64,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        lock(&self.ready).push(self.number);
    }
}

/// Call to the peer. Dropping it cancels the call.
#[derive(Object)]
#[object(key = "anyfn.web.Call", init = false, final)]
struct Call {
    /// Number of the call in its session, by which [`ready`] names it.
    number: i64,
    #[field(skip)]
    pending: Mutex<Option<PendingCall>>,
    #[field(skip)]
    result: Mutex<Option<Result<Any>>>,
    #[field(skip)]
    signal: Arc<Signal>,
    /// True if the result describes a function.
    #[field(skip)]
    is_function: bool,
}

impl Call {
    fn poll(&self) {
        let mut pending = lock(&self.pending);
        let Some(call) = &mut *pending else { return };
        let waker = Waker::from(self.signal.clone());
        if let Poll::Ready(result) = core::pin::Pin::new(call).poll(&mut Context::from_waker(&waker)) {
            *pending = None;
            *lock(&self.result) = Some(result);
            lock(&self.signal.ready).push(self.signal.number);
        }
    }
}

/// Call of the peer to a JavaScript function, or another operation that the package completes later.
#[derive(Object)]
#[object(key = "anyfn.web.Incoming", init = false, final)]
struct Incoming {
    /// Number of the JavaScript function; -1 for another operation.
    id: i64,
    /// Arguments of the call.
    args: Array<Any>,
    #[field(skip)]
    answer: Mutex<Option<Answer>>,
}

/// Begins a session as a client. `key` is the string `NAME:SECRET`.
#[register("anyfn.web.session_client")]
fn client(peer: &str, key: Option<&str>) -> Result<Ref<Session>> {
    let key = key.map(str::parse::<Key>).transpose()?;
    let limits = SessionLimits { message_bytes: MESSAGE_MAX, ..SessionLimits::TRUSTED };
    Ok(Session::new(peer, State::Client(ClientOpening::new(peer, key, random, limits))))
}

/// Begins a session as a server. `options` are the entries of a grant, and `load` makes a module of the bytes of an uploaded one.
#[register("anyfn.web.session_server")]
fn server(
    peer: &str,
    key: Option<&str>,
    options: Map<anyfn::String, Any>,
    load: PackedFunc,
) -> Result<Ref<Session>> {
    let key = key.map(str::parse::<Key>).transpose()?;
    let grant = Grant::new(&options, load)?;
    Ok(Session::new(peer, State::Server(Box::new(Server { opening: ServerOpening::new(peer), key, grant }))))
}

impl Server {
    /// Processes received bytes. Returns true if the session can begin.
    fn receive(&mut self, bytes: &[u8]) -> Result<bool> {
        let mut arrival = self.opening.receive(bytes)?;
        if let Arrival::Named(name) = &arrival {
            let key = match (name.as_deref(), &self.key) {
                (None, None) => None,
                (None, Some(_)) => return Err(self.opening.refuse(&Refused::NoKey)),
                (Some(_), None) => return Err(self.opening.refuse(&Refused::KeyNotTaken)),
                (Some(name), Some(key)) if name == key.name() => Some(key.clone()),
                // A client cannot tell an unknown name from a wrong secret.
                (Some(name), Some(_)) => Some(Key::generate(name, random)?),
            };
            arrival = self.opening.accept(key.as_ref(), random)?;
        }
        Ok(arrival == Arrival::Greeted)
    }
}

/// Processes received bytes. Returns true once the session is open.
#[register("anyfn.web.session_receive")]
fn receive(session: Ref<Session>, bytes: Bytes) -> Result<bool> {
    let mut state = lock(&session.state);
    match &mut *state {
        State::Client(opening) => {
            let opened = opening.receive(bytes.as_bytes());
            lock(&session.out).extend(opening.take_output());
            let Some(opened) = opened? else { return Ok(false) };
            *state = State::Open(opened.endpoint());
        }
        State::Server(server) => {
            let greeted = server.receive(bytes.as_bytes());
            lock(&session.out).extend(server.opening.take_output());
            if !greeted? {
                return Ok(false);
            }
            let State::Server(server) = core::mem::replace(&mut *state, State::Over) else { return Ok(false) };
            let (limits, services) = (server.grant.limits(), Box::new(Services::new(server.grant)));
            let (opened, out) = server.opening.welcome(limits, Some(services))?;
            lock(&session.out).extend(out);
            *state = State::Open(opened.endpoint());
        }
        State::Open(endpoint) => {
            let endpoint = endpoint.clone();
            // Calls of the package may follow from what is received.
            drop(state);
            endpoint.receive(bytes.as_bytes())?;
        }
        State::Over => bail!("ConnectionError", "the session has ended"),
    }
    Ok(true)
}

/// Returns the bytes that the peer is to receive.
#[register("anyfn.web.session_output")]
fn output(session: Ref<Session>) -> Bytes {
    let mut out = core::mem::take(&mut *lock(&session.out));
    let endpoint = match &mut *lock(&session.state) {
        State::Client(opening) => {
            out.extend(opening.take_output());
            None
        }
        State::Open(endpoint) => Some(endpoint.clone()),
        _ => None,
    };
    if let Some(endpoint) = endpoint {
        out.extend(endpoint.take_output());
    }
    Bytes::from(&*out)
}

/// Runs the next call of the peer. Returns None if no call is waiting, true if the call has run, and otherwise a pair: the call,
/// whose result the package has to provide, and its JavaScript function.
#[register("anyfn.web.session_turn")]
fn turn(session: Ref<Session>) -> Result<Any> {
    let Some(call) = session.endpoint()?.next_call() else { return Ok(Any::NONE) };
    // SAFETY: the call keeps the function alive.
    let id = call.function().map_or(-1, |function| unsafe {
        crate::js_function::anyfn_web_id(function.as_object().as_handle().cast())
    });
    if id < 0 || call.is_cancelled() {
        call.run();
        return Any::new(true);
    }
    // The arguments of the call may lend tensors, which end with it.
    let args = Array::try_from_iter(call.args().iter().cloned())?;
    let function = call.function().cloned();
    let answer = call.answer_later();
    let incoming = Incoming { id: i64::from(id), args, answer: Mutex::new(answer) };
    // The function stays in use until the package has called it.
    Any::new((Ref::new(incoming), function))
}

/// Answers a call of the peer.
#[register("anyfn.web.session_answer")]
fn answer(incoming: Ref<Incoming>, result: Any) {
    let taken = lock(&incoming.answer).take();
    if let Some(answer) = taken {
        answer.send(Ok(result));
    }
}

/// Answers a call of the peer by an error.
#[register("anyfn.web.session_fail")]
fn fail(incoming: Ref<Incoming>, error: ObjectRef) {
    let error =
        Error::try_from_object(error).unwrap_or_else(|_| error!("Error", "an unknown value was thrown"));
    let taken = lock(&incoming.answer).take();
    if let Some(answer) = taken {
        answer.send(Err(error));
    }
}

/// Returns the numbers of the calls whose results have arrived.
#[register("anyfn.web.session_ready")]
fn ready(session: Ref<Session>) -> Result<Array<i64>> {
    let ready = core::mem::take(&mut *lock(&session.ready));
    Array::try_from_iter(ready.into_iter().map(|number| number as i64))
}

/// Returns the result of a call in an array, or an empty array if it has not arrived.
#[register("anyfn.web.session_take")]
fn take(call: Ref<Call>) -> Result<Array<Any>> {
    call.poll();
    let result = lock(&call.result).take();
    let Some(result) = result else { return Ok(Array::new()) };
    Array::try_from_iter([result?])
}

/// Cancels a call.
#[register("anyfn.web.session_cancel")]
fn cancel(call: Ref<Call>) {
    let pending = lock(&call.pending).take();
    drop(pending);
}

/// Starts a call: the session, the function, and the arguments.
#[register("anyfn.web.session_call")]
fn call(args: Args<'_>) -> Result<Ref<Call>> {
    let (session, function) = (args.get::<Ref<Session>>(0)?, args.get::<PackedFunc>(1)?);
    let pending = session.endpoint()?.start(&function, &args.as_slice()[2..])?;
    Ok(session.call(pending, false))
}

/// Starts to look up a global function.
#[register("anyfn.web.session_lookup")]
fn lookup(session: Ref<Session>, name: &str) -> Result<Ref<Call>> {
    let pending = session.endpoint()?.start_lookup(name)?;
    Ok(session.call(pending, false))
}

/// Starts a call of a service: the session, the number of the service, and the arguments. In the first argument, and in the second
/// one of a copy, a proxy is replaced by its handle.
#[register("anyfn.web.session_service")]
fn service(args: Args<'_>) -> Result<Ref<Call>> {
    let (session, number) = (args.get::<Ref<Session>>(0)?, args.get::<u16>(1)?);
    let mut all = Vec::new();
    for (at, view) in args.as_slice()[2..].iter().enumerate() {
        let value = view.get::<Any>()?;
        let proxy = value.as_object().filter(|_| at == 0 || number == code::COPY).and_then(stands_for);
        all.push(match proxy {
            Some((_, handle)) => Any::new(handle)?,
            None => value,
        });
    }
    let pending = session.endpoint()?.start_service(number, Any::as_views(&all), &[], None)?;
    Ok(session.call(pending, number == code::MODULE_FUNCTION))
}

/// Starts to upload a file. Returns its digest and the call.
#[register("anyfn.web.session_upload")]
fn upload(session: Ref<Session>, bytes: Bytes) -> Result<Array<Any>> {
    let digest = service::digest_of(bytes.as_bytes());
    let args = (digest.as_str(), bytes.as_bytes().len());
    let pending = session.endpoint()?.start_service(code::PUT, args, bytes.as_bytes(), None)?;
    Array::try_from_iter([Any::new(digest.as_str())?, Any::new(session.call(pending, false))?])
}

/// Returns a function that a look-up in a module has described, or None.
#[register("anyfn.web.session_described")]
fn function(session: Ref<Session>, answer: Any) -> Result<Option<PackedFunc>> {
    described(&session.endpoint()?, &answer)
}

/// Starts to write the elements of a remote tensor.
#[register("anyfn.web.session_write")]
fn write(
    session: Ref<Session>,
    tensor: Ref<RemoteTensor>,
    #[read_only] from: TensorView<'_>,
) -> Result<Ref<Call>> {
    if from.dtype() != tensor.dtype {
        bail!("TypeError", "expected elements of type {}, got {}", tensor.dtype, from.dtype());
    }
    let pending = tensor.start_write(&from.read_bytes()?)?;
    Ok(session.call(pending, false))
}

/// Starts to read the elements of a remote tensor.
#[register("anyfn.web.session_read")]
fn read(session: Ref<Session>, tensor: Ref<RemoteTensor>) -> Result<Ref<Call>> {
    Ok(session.call(tensor.start_read()?, false))
}

/// Returns true if an object represents one of a peer.
#[register("anyfn.web.session_is_remote")]
fn is_remote(object: ObjectRef) -> bool {
    stands_for(&object).is_some()
}

/// Applies the limits on time. Raises the error that has ended the session.
#[register("anyfn.web.session_tick")]
fn tick(session: Ref<Session>) -> Result<()> {
    let endpoint = match &*lock(&session.state) {
        State::Open(endpoint) => endpoint.clone(),
        _ => return Ok(()),
    };
    endpoint.tick(now())
}

/// Ends the session because the connection has been closed for a reason, and raises the error to report.
#[register("anyfn.web.session_lost")]
fn lost(session: Ref<Session>, why: &str) -> Result<()> {
    let before = core::mem::replace(&mut *lock(&session.state), State::Over);
    match before {
        State::Open(endpoint) => {
            endpoint.disconnected(why);
            let ended = endpoint.ended();
            *lock(&session.state) = State::Open(endpoint);
            ended.map_or(Ok(()), Err)
        }
        State::Client(opening) => {
            let told = error!("ConnectionError", "{}: {why}", session.peer);
            let meant = opening.disconnected(&told);
            // A server that closes the connection without a reason may have refused the key.
            Err(if meant.kind() == "PermissionError" { meant } else { told })
        }
        _ => bail!("ConnectionError", "{why}"),
    }
}

/// Ends the session. The output then contains the end for the peer.
#[register("anyfn.web.session_close")]
fn close(session: Ref<Session>) {
    let open = match &*lock(&session.state) {
        State::Open(endpoint) => Some(endpoint.clone()),
        _ => None,
    };
    match open {
        Some(endpoint) => endpoint.close(),
        None => *lock(&session.state) = State::Over,
    }
}

/// Returns a new key.
#[register("anyfn.web.session_make_key")]
fn make_key(name: &str) -> Result<anyfn::String> {
    Ok(Key::generate(name, random)?.to_text().as_str().into())
}
