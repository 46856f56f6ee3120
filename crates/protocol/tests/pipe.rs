//! Sessions over an in-memory pipe that delivers one byte at a time. Both ends are state machines: there are no threads, clocks or
//! sockets.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use anyfn::{Any, DType, Device, PackedFunc, Ref, Result, Shape, bail, registry};
use anyfn_core as _;
use anyfn_protocol::frame::{FrameKind, Frames, header};
use anyfn_protocol::services::Services;
use anyfn_protocol::{
    Answer, Arrival, ClientOpening, Endpoint, Key, PendingCall, RemoteTensor, Secret, ServerOpening,
    SessionLimits, answer_later, code,
};
use anyfn_runtime as _;

/// Fills `bytes` with numbers that are random enough for a test.
fn random(bytes: &mut [u8]) -> Result<()> {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    for byte in bytes {
        *byte = (NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B1) >> 13) as u8;
    }
    Ok(())
}

fn key(secret: u8) -> Key {
    Key::new("alice", Secret([secret; 32])).unwrap()
}

/// Both ends of a session.
struct Pipe {
    client: Arc<Endpoint>,
    server: Arc<Endpoint>,
}

/// Opens a session byte by byte. Each end has the given key, or none.
fn open(client_key: Option<Key>, server_key: Option<Key>, limits: &SessionLimits) -> Result<Pipe> {
    let mut client = ClientOpening::new("server", client_key, random, limits.clone());
    let mut server = ServerOpening::new("client");
    let mut welcome = Vec::new();
    let mut session = None;
    loop {
        let (up, down) = (client.take_output(), [server.take_output(), std::mem::take(&mut welcome)].concat());
        assert!(!up.is_empty() || !down.is_empty(), "the handshake does not go on");
        let mut arrival = Ok(Arrival::Waiting);
        for byte in up {
            arrival = server.receive(&[byte]);
            if let Ok(Arrival::Named(name)) = &arrival {
                arrival = match (&server_key, name.as_deref()) {
                    (Some(_), None) => Err(server.refuse(&anyfn_protocol::Refused::NoKey)),
                    (None, Some(_)) => Err(server.refuse(&anyfn_protocol::Refused::KeyNotTaken)),
                    (Some(key), name) => {
                        assert_eq!(name, Some("alice"));
                        server.accept(Some(key), random)
                    }
                    (None, None) => server.accept(None, random),
                };
            }
        }
        for byte in down {
            if let Some(opened) = client.receive(&[byte])? {
                let server = session.take().expect("the server has sent its greeting");
                return Ok(Pipe { client: opened.endpoint(), server });
            }
        }
        if matches!(arrival, Ok(Arrival::Greeted)) {
            let grants = Services::new(vec!["pipe.*".to_owned()]);
            let before = std::mem::replace(&mut server, ServerOpening::new("nobody"));
            let (opened, out) = before.welcome(limits.clone(), Some(Box::new(grants)))?;
            (session, welcome) = (Some(opened.endpoint()), out);
        } else if let Err(error) = arrival {
            let answer = server.take_output();
            let refused = answer.iter().find_map(|byte| client.receive(&[*byte]).err());
            return Err(refused.unwrap_or_else(|| client.disconnected(&error)));
        }
    }
}

fn pipe() -> Pipe {
    open(None, None, &SessionLimits::TRUSTED).unwrap()
}

/// Delivers the output of one end to the other, byte by byte. Returns false if there was no output.
fn deliver(from: &Endpoint, to: &Arc<Endpoint>) -> bool {
    let bytes = from.take_output();
    for byte in &bytes {
        to.receive(std::slice::from_ref(byte)).unwrap();
    }
    !bytes.is_empty()
}

impl Pipe {
    /// Moves bytes and runs calls until nothing is left to do.
    fn turn(&self) {
        loop {
            let moved = deliver(&self.client, &self.server) | deliver(&self.server, &self.client);
            if !moved && !self.server.run_next() && !self.client.run_next() {
                return;
            }
        }
    }

    /// Runs both ends and returns the result of a call, which must have arrived when nothing is
    /// left to do.
    fn finish(&self, mut call: PendingCall) -> Result<Any> {
        self.turn();
        call.take().expect("the result has arrived")
    }

    fn function(&self, name: &str) -> PackedFunc {
        self.finish(self.client.start_lookup(name).unwrap()).unwrap().get::<PackedFunc>().unwrap()
    }

    fn call(&self, name: &str, args: impl anyfn::IntoArgs) -> Result<Any> {
        let function = self.function(name);
        self.finish(self.client.start(&function, args)?)
    }
}

fn register(name: &str, body: impl Fn(anyfn::Args<'_>) -> Result<Any> + Send + Sync + 'static) {
    registry::register(name).overriding().set(&PackedFunc::new(body)).unwrap();
}

fn add(args: anyfn::Args<'_>) -> Result<Any> {
    Any::new(args.get::<i64>(0)? + args.get::<i64>(1)?)
}

#[test]
fn a_call_by_name_and_its_errors() {
    register("pipe.add", add);
    for key in [None, Some(key(1))] {
        let pipe = open(key.clone(), key, &SessionLimits::TRUSTED).unwrap();
        assert_eq!(pipe.call("pipe.add", (40, 2)).unwrap().get::<i64>().unwrap(), 42);
        let error = pipe.call("pipe.add", (40, "two")).unwrap_err();
        assert_eq!(error.kind(), "TypeError");
        assert!(error.backtrace().contains("\"server\", in <remote>"), "{}", error.backtrace());
        let error = pipe.finish(pipe.client.start_lookup("other.add").unwrap()).unwrap_err();
        assert_eq!(error.kind(), "PermissionError");
        let error = pipe.finish(pipe.client.start_lookup("pipe.missing").unwrap()).unwrap_err();
        assert_eq!(error.message(), "server: no function is named \"pipe.missing\"");
    }
}

#[test]
fn keys_that_do_not_match() {
    let kinds = [
        (None, Some(key(1)), "server: the server requires a key: pass `key_file=` or `key=`"),
        (Some(key(1)), Some(key(2)), "server: the server does not accept the key"),
    ];
    for (client, server, message) in kinds {
        let Err(error) = open(client, server, &SessionLimits::SMALL) else { panic!("the session is open") };
        assert_eq!((error.kind(), error.message()), ("PermissionError", message));
    }
    let Err(error) = open(Some(key(1)), None, &SessionLimits::SMALL) else { panic!("the session is open") };
    assert!(error.message().contains("started without keys"), "{error}");
    fn none(_: &mut [u8]) -> Result<()> {
        bail!("OSError", "the generator is broken")
    }
    let mut client = ClientOpening::new("server", Some(key(1)), none, SessionLimits::SMALL);
    let mut server = ServerOpening::new("client");
    server.receive(&client.take_output()).unwrap();
    server.accept(Some(&key(1)), random).unwrap();
    let Err(error) = client.receive(&server.take_output()) else { panic!("it has exchanged keys") };
    assert_eq!(error.message(), "server: cannot exchange keys: no random bytes are available");
}

#[test]
fn a_queue_before_the_greeting() {
    let mut client = ClientOpening::new("server", None, random, SessionLimits::SMALL);
    let mut server = ServerOpening::new("client");
    server.receive(&client.take_output()).unwrap();
    server.accept(None, random).unwrap();
    client.receive(&server.take_output()).unwrap();
    assert_eq!(server.receive(&client.take_output()).unwrap(), Arrival::Greeted);
    assert_eq!(client.position(), None);
    server.queued(3).unwrap();
    assert!(client.receive(&server.take_output()).unwrap().is_none());
    assert_eq!(client.position(), Some(3));
    server.turn_away("the server is closing").unwrap();
    let Err(error) = client.receive(&server.take_output()) else { panic!("the session is open") };
    assert_eq!(error.message(), "server: the server is closing");
}

#[test]
fn a_proxy_cannot_be_called_without_a_driver_that_blocks() {
    register("pipe.blocking", add);
    let pipe = pipe();
    let error = pipe.function("pipe.blocking").call((1, 2)).unwrap_err();
    assert_eq!(error.kind(), "RuntimeError");
    assert!(error.message().contains("start the call with `Endpoint::start`"), "{error}");
    // Nothing was sent, and the session goes on.
    assert!(pipe.client.take_output().len() < 40, "at most a release");
    let other = PackedFunc::new(add);
    let Err(error) = pipe.client.start(&other, (1, 2)) else { panic!("it calls a local function") };
    assert_eq!(error.kind(), "TypeError");
}

/// Calls the first argument with the second one, and then calls it again with the result, without
/// blocking.
fn twice(args: anyfn::Args<'_>) -> Result<Any> {
    let (function, value) = (args.get::<PackedFunc>(0)?, args.get::<i64>(1)?);
    let answer = answer_later()?;
    let endpoint = answer.endpoint().clone();
    endpoint.start(&function, (value,))?.then(move |first| {
        let second = answer.within(|| first.and_then(|value| endpoint.start(&function, (value,))));
        match second {
            Ok(call) => call.then(move |second| answer.send(second)),
            Err(error) => answer.send(Err(error)),
        }
    });
    Ok(Any::NONE)
}

#[test]
fn a_callback_within_a_call() {
    register("pipe.twice", twice);
    let pipe = pipe();
    let square = PackedFunc::new(|args| Any::new(args.get::<i64>(0)?.pow(2)));
    assert_eq!(pipe.call("pipe.twice", (square, 3)).unwrap().get::<i64>().unwrap(), 81);
    // An error of the callback travels to the server and back.
    let fails = PackedFunc::new(|_| bail!("KeyError", "no such number"));
    let error = pipe.call("pipe.twice", (fails, 3)).unwrap_err();
    assert_eq!((error.kind(), error.message()), ("KeyError", "no such number"));
    assert_eq!(error.backtrace().matches("<remote>").count(), 2, "{}", error.backtrace());
}

#[test]
fn answers_in_any_order() {
    static LATER: Mutex<Vec<(i64, Answer)>> = Mutex::new(Vec::new());
    register("pipe.later", |args| {
        let answer = answer_later()?;
        assert!(answer_later().is_err(), "there is one answer");
        LATER.lock().unwrap().push((args.get::<i64>(0)?, answer));
        Any::new("this value is ignored")
    });
    register("pipe.later_fails", |_| {
        let _answer = answer_later()?;
        bail!("ValueError", "it changed its mind")
    });
    register("pipe.at_once", |_| {
        drop(answer_later()?);
        Any::new(5)
    });
    let pipe = pipe();
    let later = pipe.function("pipe.later");
    let mut calls: Vec<_> = (0..3).map(|n| pipe.client.start(&later, (n,)).unwrap()).collect();
    pipe.turn();
    assert!(calls.iter_mut().all(|call| call.take().is_none()), "nothing has been answered");
    let mut answers = std::mem::take(&mut *LATER.lock().unwrap());
    // The last is answered first, and the first is dropped.
    let (number, last) = answers.pop().unwrap();
    last.send(Any::new(number * 10));
    pipe.turn();
    assert_eq!(calls[2].take().unwrap().unwrap().get::<i64>().unwrap(), 20);
    assert!(calls[2].take().is_none(), "a result is taken once");
    let (_, second) = answers.pop().unwrap();
    drop(answers);
    pipe.turn();
    let error = calls[0].take().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.message()), ("RuntimeError", "the call was abandoned without an answer"));
    second.send(Ok(Any::NONE));
    pipe.turn();
    assert!(calls[1].take().unwrap().is_ok());
    let error = pipe.call("pipe.later_fails", ()).unwrap_err();
    assert_eq!(error.message(), "it changed its mind");
    assert_eq!(pipe.call("pipe.at_once", ()).unwrap().get::<i64>().unwrap(), 5);
    assert!(answer_later().is_err(), "no call runs");
}

#[test]
fn calls_answered_without_running_their_function() {
    register("pipe.never_runs", |_| panic!("it runs"));
    let pipe = pipe();
    let function = pipe.function("pipe.never_runs");
    let mut call = pipe.client.start(&function, (7,)).unwrap();
    deliver(&pipe.client, &pipe.server);
    let arrived = pipe.server.next_call().unwrap();
    assert_eq!(arrived.args()[0].get::<i64>().unwrap(), 7);
    assert!(arrived.function().is_some() && pipe.server.next_call().is_none());
    arrived.answer(Any::new("by hand"));
    pipe.turn();
    assert_eq!(call.take().unwrap().unwrap().get::<String>().unwrap(), "by hand");
    let mut call = pipe.client.start(&function, ()).unwrap();
    deliver(&pipe.client, &pipe.server);
    drop(pipe.server.next_call());
    pipe.turn();
    assert_eq!(call.take().unwrap().unwrap_err().kind(), "RuntimeError");
}

#[test]
fn a_call_that_is_cancelled() {
    static ANSWER: Mutex<Option<Answer>> = Mutex::new(None);
    register("pipe.cancelled", |_| {
        *ANSWER.lock().unwrap() = Some(answer_later()?);
        Ok(Any::NONE)
    });
    let pipe = pipe();
    let function = pipe.function("pipe.cancelled");
    let call = pipe.client.start(&function, ()).unwrap();
    pipe.turn();
    let answer = ANSWER.lock().unwrap().take().unwrap();
    assert!(!answer.is_cancelled());
    call.cancel();
    pipe.turn();
    assert!(answer.is_cancelled() && answer.within(anyfn_protocol::is_cancelled));
    assert_eq!(answer.within(|| anyfn::check_signals().unwrap_err()).kind(), "CancelledError");
    // The result is discarded, and the session goes on.
    answer.send(Any::new(1));
    pipe.turn();
    assert!(pipe.client.start(&function, ()).is_ok());
}

#[test]
fn handles_are_released() {
    register("pipe.make", |_| Any::new(PackedFunc::new(add)));
    let few = SessionLimits { handles: 3, ..SessionLimits::TRUSTED };
    let pipe = open(None, None, &few).unwrap();
    let make = pipe.function("pipe.make");
    for _ in 0..20 {
        let made = pipe.finish(pipe.client.start(&make, ()).unwrap()).unwrap();
        drop(made);
        // The release travels with the next output.
        pipe.turn();
    }
    let kept: Vec<Result<Any>> = (0..3).map(|_| pipe.finish(pipe.client.start(&make, ()).unwrap())).collect();
    let error = kept.into_iter().find_map(Result::err).expect("more than the limit");
    assert!(error.message().contains("which is its limit (`handles`)"), "{error}");
}

#[test]
fn tensors_and_bulk_data() {
    // Small pieces, several records, and several frames.
    for count in [3_usize, 3000, 100_000] {
        let key = Some(key(9));
        let pipe = open(key.clone(), key, &SessionLimits::TRUSTED).unwrap();
        let shape = Shape::from(&[count as i64][..]);
        let args = (shape, "float32".parse::<DType>().unwrap(), Device::CPU);
        let made = pipe.client.start_service(code::EMPTY, args, &[], None).unwrap();
        let tensor = pipe.finish(made).unwrap().get::<Ref<RemoteTensor>>().unwrap();
        let bytes: Vec<u8> = (0..4 * count).map(|n| n as u8).collect();
        pipe.finish(tensor.start_write(&bytes).unwrap()).unwrap();
        let mut reading = tensor.start_read().unwrap();
        assert_eq!(reading.transferred(), (0, 4 * count));
        pipe.turn();
        assert_eq!(reading.transferred(), (4 * count, 4 * count));
        let read = reading.take().unwrap().unwrap();
        assert_eq!(read.get::<&[u8]>().unwrap(), &bytes[..]);
        // A tensor has a length.
        let Err(error) = tensor.start_write(&bytes[1..]) else { panic!("it writes part of a tensor") };
        assert_eq!(error.kind(), "ValueError");
    }
}

#[test]
fn a_transfer_that_is_refused_or_cut_short() {
    let pipe = pipe();
    let refused = pipe.client.start_service(code::WRITE, (77, 0, 5), b"bytes", None).unwrap();
    assert_eq!(pipe.finish(refused).unwrap_err().kind(), "ValueError");
    // The server sends nothing before its result, so the announced bytes are missing.
    let short = pipe.client.start_service(code::NAMES, (), &[], Some(5)).unwrap();
    let error = pipe.finish(short).unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        ("ConnectionError", "the peer sent fewer bytes than requested")
    );
    // More bytes than expected end the session.
    let id = 2;
    let _call = pipe.client.start_service(code::NAMES, (), &[], Some(1)).unwrap();
    let data = [&header(FrameKind::Data, false, id + 1, 10)[..], &[0; 10]].concat();
    let error = pipe.client.receive(&data).unwrap_err();
    assert!(error.message().contains("at an unexpected offset or beyond its end"), "{error}");
}

#[test]
fn malformed_bytes_end_the_session() {
    let malformed = [
        (vec![1, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "unknown frame kind 99"),
        (vec![0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "unknown frame flags"),
        (vec![0xff; 4].into_iter().chain([9; 12]).collect(), "unknown frame flags"),
        (header(FrameKind::Hello, false, 0, 0).to_vec(), "unexpected handshake message"),
        ([&header(FrameKind::Release, false, 0, 3)[..], &[1, 2, 3]].concat(), "a message ends within a value"),
    ];
    for (bytes, message) in malformed {
        let pipe = pipe();
        let mut waiting = pipe.client.start_service(code::NAMES, (), &[], None).unwrap();
        let error = bytes.iter().find_map(|byte| pipe.client.receive(&[*byte]).err()).expect(message);
        assert!(error.message().contains(message), "{error}");
        assert_eq!(waiting.take().unwrap().unwrap_err().message(), error.message());
        // It stays ended.
        assert_eq!(pipe.client.receive(&[0]).unwrap_err().message(), error.message());
        assert!(pipe.client.start_service(code::NAMES, (), &[], None).is_err());
    }
}

#[test]
fn no_damaged_byte_does_harm() {
    register("pipe.damaged", add);
    let whole = pipe();
    let function = whole.function("pipe.damaged");
    let _call = whole.client.start(&function, ("text", 1.5, vec![1_i64, 2], 4)).unwrap();
    let bytes = whole.client.take_output();
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let pipe = pipe();
            let _function = pipe.function("pipe.damaged");
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            // The bytes may be a valid call, wait for more bytes, or end the session.
            let _ = pipe.server.receive(&damaged);
            while pipe.server.run_next() {}
            let answer = pipe.server.take_output();
            let _ = pipe.client.receive(&answer);
        }
    }
    // In an encrypted session, no change has any effect but the end.
    let whole = open(Some(key(3)), Some(key(3)), &SessionLimits::SMALL).unwrap();
    let _call = whole.client.start_service(code::NAMES, (), &[], None).unwrap();
    let mut bytes = whole.client.take_output();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let error = whole.server.receive(&bytes).unwrap_err();
    assert!(error.message().contains("authentication failed"), "{error}");
    assert!(whole.server.next_call().is_none());
}

#[test]
fn the_end_of_a_session() {
    static ANSWER: Mutex<Option<Answer>> = Mutex::new(None);
    register("pipe.ended", |_| {
        *ANSWER.lock().unwrap() = Some(answer_later()?);
        Ok(Any::NONE)
    });
    let pipe = pipe();
    let function = pipe.function("pipe.ended");
    let heard = Arc::new(Mutex::new(None));
    let here = heard.clone();
    pipe.client.start(&function, ()).unwrap().then(move |result| *here.lock().unwrap() = Some(result));
    pipe.turn();
    let answer = ANSWER.lock().unwrap().take().unwrap();
    pipe.server.close();
    assert!(answer.is_cancelled());
    answer.send(Ok(Any::NONE));
    let bytes = pipe.server.take_output();
    assert_eq!(bytes, header(FrameKind::Bye, false, 0, 0), "nothing follows it");
    let error = pipe.client.receive(&bytes).unwrap_err();
    assert_eq!((error.kind(), error.message()), ("ConnectionError", "server: the peer ended the session"));
    let result = heard.lock().unwrap().take().expect("the callback has run");
    assert_eq!(result.unwrap_err().message(), error.message());
    let other = self::pipe();
    other.client.disconnected("the cable was pulled");
    assert_eq!(other.client.ended().unwrap().message(), "server: the cable was pulled");
}

#[test]
fn a_call_is_a_future() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    register("pipe.future", add);
    let pipe = pipe();
    let function = pipe.function("pipe.future");
    let client = pipe.client.clone();
    let mut task = pin!(async move { client.start(&function, (1, 2))?.await?.get::<i64>() });
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    assert!(task.as_mut().poll(&mut context).is_pending());
    pipe.turn();
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    let Poll::Ready(result) = task.as_mut().poll(&mut context) else { panic!("the result has arrived") };
    assert_eq!(result.unwrap(), 3);
}

#[test]
fn time_limits() {
    let seconds = Duration::from_secs;
    let limits = SessionLimits { call_seconds: 10, idle_seconds: 60, ..SessionLimits::TRUSTED };
    register("pipe.slow", |_| {
        std::mem::forget(answer_later()?);
        Ok(Any::NONE)
    });
    let pipe = open(None, None, &limits).unwrap();
    let function = pipe.function("pipe.slow");
    let mut call = pipe.client.start(&function, ()).unwrap();
    pipe.turn();
    for now in [1, 4] {
        pipe.client.tick(seconds(now)).unwrap();
        pipe.server.tick(seconds(now)).unwrap();
        assert!(pipe.client.take_output().is_empty());
    }
    // A client that has heard nothing for more than 5 seconds asks, and is answered.
    pipe.client.tick(seconds(8)).unwrap();
    assert!(deliver(&pipe.client, &pipe.server) && deliver(&pipe.server, &pipe.client));
    pipe.client.tick(seconds(9)).unwrap();
    let error = pipe.server.tick(seconds(12)).unwrap_err();
    assert!(error.message().contains("exceeded the limit of 10 seconds (`call_seconds`)"), "{error}");
    let bytes = pipe.server.take_output();
    pipe.client.receive(&bytes).unwrap_err();
    assert!(call.take().unwrap().unwrap_err().message().contains("call_seconds"));

    let idle = open(None, None, &limits).unwrap();
    idle.server.note_heard();
    idle.server.tick(seconds(59)).unwrap();
    idle.server.tick(seconds(118)).unwrap();
    assert!(idle.server.tick(seconds(119)).unwrap_err().message().ends_with("idle for too long"));

    let silent = open(None, None, &limits).unwrap();
    let _call = silent.client.start_service(code::NAMES, (), &[], None).unwrap();
    silent.client.note_heard();
    for now in [1, 7, 22] {
        silent.client.tick(seconds(now)).unwrap();
    }
    assert!(silent.client.tick(seconds(23)).unwrap_err().message().contains("no answer for 22 seconds"));
}

#[test]
fn a_peer_that_reads_no_replies_ends_the_session() {
    let pipe = pipe();
    let ping = header(FrameKind::Ping, false, 1, 0);
    let error = (0..5000).find_map(|_| pipe.server.receive(&ping).err()).unwrap();
    assert!(error.message().contains("requests more replies than it reads"), "{error}");
}

#[test]
fn output_that_is_sent_in_parts() {
    register("pipe.parts", add);
    let pipe = pipe();
    let function = pipe.function("pipe.parts");
    let mut call = pipe.client.start(&function, (1, 2)).unwrap();
    let mut all = Vec::new();
    loop {
        let left = pipe.client.send_output(|bytes| {
            let some = bytes.len().min(5);
            all.extend_from_slice(&bytes[..some]);
            some
        });
        if left == 0 {
            break;
        }
    }
    assert_eq!(pipe.client.send_output(|_| panic!("nothing is left")), 0);
    pipe.server.receive(&all).unwrap();
    pipe.turn();
    assert_eq!(call.take().unwrap().unwrap().get::<i64>().unwrap(), 3);
}

#[test]
fn an_id_that_is_used_again() {
    static ANSWER: Mutex<Option<Answer>> = Mutex::new(None);
    register("pipe.again", |_| {
        *ANSWER.lock().unwrap() = Some(answer_later()?);
        Ok(Any::NONE)
    });
    let pipe = pipe();
    let function = pipe.function("pipe.again");
    let _call = pipe.client.start(&function, ()).unwrap();
    let bytes = pipe.client.take_output();
    pipe.server.receive(&bytes).unwrap();
    assert!(pipe.server.run_next());
    // The call is still in progress.
    let call = &bytes[bytes.len() - 16 - 8 - 2 - 9 - 4..];
    let error = pipe.server.receive(call).unwrap_err();
    assert!(error.message().contains("two calls have the same number"), "{error}");
    ANSWER.lock().unwrap().take().unwrap().send(Ok(Any::NONE));
}

/// A server does not know the limits of its client, and sends bulk data in long frames.
#[test]
fn only_small_receivers_refuse_long_frames() {
    let longest = 256 << 10;
    for limit in [SessionLimits::SMALL.message_bytes, SessionLimits::TRUSTED.message_bytes] {
        let mut frames = Frames::new(limit);
        frames.push(&header(FrameKind::Data, false, 1, longest));
        frames.push(&vec![7; longest]);
        assert_eq!(frames.next().unwrap().unwrap().payload.len(), longest);
        frames.push(&header(FrameKind::Data, false, 1, longest + 1));
        assert!(frames.next().is_err());
    }
    // A board has no memory for more than a message, and refuses a longer frame when its length has arrived.
    let mut frames = Frames::new(4096);
    frames.push(&header(FrameKind::Data, false, 1, 4096));
    assert!(frames.next().unwrap().is_none());
    let mut frames = Frames::new(4096);
    frames.push(&header(FrameKind::Data, false, 1, 4097));
    assert!(frames.next().unwrap_err().to_string().contains("got 4097"));
}
