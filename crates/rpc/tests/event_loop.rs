//! Tests endpoints in an event loop over non-blocking sockets. The other end is the blocking client
//! or server.

mod hand;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyfn::{Any, DType, Device, PackedFunc, Ref, Result, Shape, registry};
use anyfn_loader as _;
use anyfn_protocol::services::Services;
use anyfn_protocol::{
    Arrival, ClientOpening, Endpoint, PendingCall, Refused, ServerOpening, SessionLimits, answer_later, code,
};
use anyfn_random as _;
use anyfn_reflect as _;
use anyfn_rpc::keys::system_random;
use anyfn_rpc::policy::Policy;
use anyfn_rpc::{RemoteTensor, Session};
use anyfn_runtime as _;

/// Socket that never blocks.
trait Transport: Read + Write {}
impl<T: Read + Write> Transport for T {}

/// Reads the bytes that have arrived, which may be none. Returns `None` if the peer has closed the
/// connection.
fn arrived(socket: &mut dyn Transport) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 4096];
    match socket.read(&mut bytes) {
        Ok(0) => None,
        Ok(count) => {
            bytes.truncate(count);
            Some(bytes)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(Vec::new()),
        Err(_) => None,
    }
}

/// Runs one turn of the event loop. Returns false if the session has ended.
fn turn(endpoint: &Arc<Endpoint>, socket: &mut dyn Transport) -> bool {
    endpoint.send_output(|bytes| match socket.write(bytes) {
        Ok(count) => count,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(_) => bytes.len(),
    });
    match arrived(socket) {
        None => endpoint.disconnected("the peer closed the connection"),
        Some(bytes) if bytes.is_empty() => std::thread::sleep(Duration::from_micros(200)),
        Some(bytes) => drop(endpoint.receive(&bytes)),
    }
    while endpoint.run_next() {}
    endpoint.ended().is_none()
}

fn finish(endpoint: &Arc<Endpoint>, socket: &mut dyn Transport, mut call: PendingCall) -> Result<Any> {
    let begin = Instant::now();
    loop {
        if let Some(result) = call.take() {
            return result;
        }
        turn(endpoint, socket);
        assert!(begin.elapsed() < Duration::from_secs(30), "no answer arrives");
    }
}

#[test]
fn a_client_in_an_event_loop_with_the_blocking_server() {
    let apply = PackedFunc::new(|args| {
        let function = args.get::<PackedFunc>(0)?;
        // The server blocks while the client, which cannot block, runs the callback.
        Any::new(function.call((args.get::<i64>(1)?,))?.get::<i64>()? + 1)
    });
    registry::register("loop.apply").overriding().set(&apply).unwrap();
    for key in [None, Some(hand::ALICE)] {
        let (mut socket, server) = hand::serve(Policy::trusted(), key);
        socket.set_nonblocking(true).unwrap();
        let own = key.map(|key| key.parse().unwrap());
        let mut opening = ClientOpening::new("server", own, system_random, SessionLimits::TRUSTED);
        let endpoint = loop {
            socket.write_all(&opening.take_output()).unwrap();
            let bytes = arrived(&mut socket).expect("the server accepts the client");
            if let Some(opened) = opening.receive(&bytes).unwrap() {
                break opened.endpoint();
            }
        };
        let found = endpoint.start_lookup("loop.apply").unwrap();
        let apply = finish(&endpoint, &mut socket, found).unwrap().get::<PackedFunc>().unwrap();
        let square = PackedFunc::new(|args| Any::new(args.get::<i64>(0)?.pow(2)));
        let call = endpoint.start(&apply, (square, 6)).unwrap();
        assert_eq!(finish(&endpoint, &mut socket, call).unwrap().get::<i64>().unwrap(), 37);
        let count = 200_000;
        let args = (Shape::from(&[count][..]), "uint8".parse::<DType>().unwrap(), Device::CPU);
        let made = endpoint.start_service(code::EMPTY, args, &[], None).unwrap();
        let tensor = finish(&endpoint, &mut socket, made).unwrap().get::<Ref<RemoteTensor>>().unwrap();
        let bytes: Vec<u8> = (0..count).map(|n| (n % 251) as u8).collect();
        finish(&endpoint, &mut socket, tensor.start_write(&bytes).unwrap()).unwrap();
        let read = finish(&endpoint, &mut socket, tensor.start_read().unwrap()).unwrap();
        assert!(read.get::<&[u8]>().unwrap() == bytes);
        drop((tensor, apply));
        endpoint.close();
        turn(&endpoint, &mut socket);
        assert!(server.join().unwrap().contains("the peer ended the session"));
    }
}

/// Serves one client in an event loop until the session ends. If `key` is given, the client must
/// have this key.
fn serve(mut socket: std::net::TcpStream, key: Option<&str>) {
    socket.set_nonblocking(true).unwrap();
    let key = key.map(|key| key.parse().unwrap());
    let mut opening = ServerOpening::new("client");
    loop {
        socket.write_all(&opening.take_output()).unwrap();
        let Some(bytes) = arrived(&mut socket) else { return };
        let arrival = match opening.receive(&bytes) {
            Ok(Arrival::Named(name)) if name.is_some() == key.is_some() => {
                opening.accept(key.as_ref(), system_random)
            }
            Ok(Arrival::Named(_)) => Err(opening.refuse(&Refused::NoKey)),
            other => other,
        };
        if let Ok(Arrival::Greeted) = arrival {
            break;
        }
        if arrival.is_err() {
            return socket.write_all(&opening.take_output()).unwrap();
        }
    }
    let services = Services::new(vec!["loop.*".to_owned()]);
    let (opened, out) = opening.welcome(SessionLimits::TRUSTED, Some(Box::new(services))).unwrap();
    socket.write_all(&out).unwrap();
    let endpoint = opened.endpoint();
    while turn(&endpoint, &mut socket) {}
}

#[test]
fn the_blocking_client_with_a_server_in_an_event_loop() {
    // Calls the client back, without blocking, and answers with the result.
    let relay = PackedFunc::new(|args| {
        let (function, answer) = (args.get::<PackedFunc>(0)?, answer_later()?);
        let call = answer.endpoint().start(&function, (args.get::<i64>(1)?,))?;
        call.then(move |result| answer.send(result));
        Ok(Any::NONE)
    });
    registry::register("loop.relay").overriding().set(&relay).unwrap();
    let connect = registry::get("rpc.connect").unwrap();
    for key in [None, Some(hand::ALICE)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::scope(|scope| {
            let served = scope.spawn(|| serve(listener.accept().unwrap().0, key));
            let session = connect.call(("127.0.0.1", port, key)).unwrap().get::<Ref<Session>>().unwrap();
            let relay = session.get_function("loop.relay").unwrap();
            let add = PackedFunc::new(|args| Any::new(args.get::<i64>(0)? + 1));
            for n in 0..20 {
                assert_eq!(relay.call((&add, n)).unwrap().get::<i64>().unwrap(), n + 1);
            }
            // Calls whose results are taken later, in another order.
            let (endpoint, _) = anyfn_protocol::stands_for(relay.as_object()).unwrap();
            let pending: Vec<_> = (0..5).map(|n| endpoint.start(&relay, (&add, n)).unwrap()).collect();
            for (n, call) in pending.into_iter().enumerate().rev() {
                assert_eq!(call.wait().unwrap().get::<usize>().unwrap(), n + 1);
            }
            assert_eq!(session.get_function("other.relay").unwrap_err().kind(), "PermissionError");
            let made = session.allocate(Shape::from(&[1000][..]), "int64".parse().unwrap(), None).unwrap();
            let there = made.get::<Ref<RemoteTensor>>().unwrap();
            let here = anyfn::Tensor::from_slice(&[1000], &(0..1000).collect::<Vec<i64>>()).unwrap();
            there.write(here.view(), None).unwrap();
            let back = anyfn::Tensor::from_slice(&[1000], &[0_i64; 1000]).unwrap();
            there.read(back.view(), None).unwrap();
            assert_eq!(back.read::<i64>().unwrap()[..], here.read::<i64>().unwrap()[..]);
            session.close();
            served.join().unwrap();
        });
    }
    // A client without the key is refused with the reason.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::scope(|scope| {
        scope.spawn(|| serve(listener.accept().unwrap().0, Some(hand::ALICE)));
        let error = connect.call(("127.0.0.1", port)).unwrap_err();
        assert!(error.message().contains("the server requires a key"), "{error}");
    });
}
