//! Measures sessions and, for comparison, transfers of the same number of bytes over plain sockets. Usage:
//! `sessions PORT PORT_WITH_KEY KEY LIBRARY [ROW...]`, where the ports are those of a server without a key
//! and of one with a key, and the library is compiled from `kernels.c`. Started as `sessions raw`, the
//! program serves the plain sockets and prints its two ports.
//!
//! Prints `name=nanoseconds` per row, and for the comparison `name@raw=nanoseconds` with sockets that block and
//! `name@polled=nanoseconds` with sockets that poll before they block, as both ends of a session do. They are measured
//! alternately.

use std::error::Error;
use std::hint::black_box;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyfn::{Any, Bytes, DType, Device, Module, PackedFunc, Ref, Shape, Tensor, registry};
use anyfn_host as _;
use anyfn_host::rpc::{RemoteTensor, Session};
use snow::StatelessTransportState;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

const LARGE: usize = 64 << 20;
const SMALL: usize = 4096;
/// Maximum time that a read polls before it blocks, both in a session and over the plain sockets that poll.
const POLL_TIME: Duration = Duration::from_micros(20);

/// Size in bytes of the message for a call: a frame header and the content that `docs/rpc.md` describes. The
/// next three constants are the sizes of a service call, of an integer argument, and of an answer without a
/// value.
const CALL: usize = 16 + 23;
const SERVICE: usize = 16 + 17;
const INT: usize = 9;
const NONE: usize = 16 + 1;

/// Number of bytes that encryption adds to a record: the length prefix and the authentication tag.
const SEAL: usize = 2 + 16;
/// Maximum number of bytes in a record before encryption.
const RECORD: usize = 65_535 - 16;

/// Returns the number of bytes on the wire, including frame headers, for a transfer of `bytes` bytes. The
/// call that starts the transfer is not included.
fn transferred(bytes: usize) -> usize {
    bytes + bytes.div_ceil((256 << 10) - 8) * 24
}

/// Serves the plain sockets. On one port, each client states how many bytes to exchange in each direction and
/// whether to poll, and the two ends then exchange them repeatedly. On the other port, each client receives one byte.
fn raw_server() -> Result<()> {
    let (echo, doors) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    println!("{} {}", echo.local_addr()?.port(), doors.local_addr()?.port());
    std::io::stdout().flush()?;
    std::thread::spawn(move || {
        for stream in doors.incoming().flatten() {
            let _ = (&stream).write_all(&[1]);
        }
    });
    std::thread::spawn(move || {
        for stream in echo.incoming().flatten() {
            std::thread::spawn(move || echo_one(stream).is_ok());
        }
    });
    // Runs until the parent process closes the pipe.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn echo_one(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut sizes = [[0; 8]; 3];
    stream.read_exact(sizes.as_flattened_mut())?;
    let [up, down, polls] = sizes.map(|size| u64::from_le_bytes(size) as usize);
    let polls = polls != 0;
    stream.set_nonblocking(polls)?;
    let mut kept = vec![0; up.min(1 << 20)];
    let answer = vec![1; down];
    loop {
        if up > kept.len() {
            // Untouched memory, like that of a new tensor.
            stream.read_exact(&mut vec![0; up])?;
        } else {
            receive(&mut stream, &mut kept, polls)?;
        }
        stream.write_all(&answer)?;
    }
}

/// Fills `into` from a socket. If `polls` is true, which requires a non-blocking socket, each read polls for at most
/// [`POLL_TIME`] before it blocks.
fn receive(stream: &mut TcpStream, into: &mut [u8], polls: bool) -> std::io::Result<()> {
    if !polls {
        return stream.read_exact(into);
    }
    let (mut filled, mut begin) = (0, Instant::now());
    while filled < into.len() {
        let count = match stream.read(&mut into[filled..]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && begin.elapsed() > POLL_TIME => {
                stream.set_nonblocking(false)?;
                let count = stream.read(&mut into[filled..])?;
                stream.set_nonblocking(true)?;
                begin = Instant::now();
                count
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            read => read?,
        };
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        filled += count;
    }
    Ok(())
}

/// Child process that serves the plain sockets (`raw_server`).
struct Raw {
    child: Child,
    echo: u16,
    doors: u16,
}

impl Raw {
    fn start() -> Result<Raw> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg("raw").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let mut ports = line.split_whitespace().map(str::parse::<u16>);
        let mut port = || ports.next().ok_or("no port");
        let (echo, doors) = (port()??, port()??);
        Ok(Raw { child, echo, doors })
    }

    fn exchange(&self, up: usize, down: usize, polls: bool) -> Result<Exchange> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.echo))?;
        stream.set_nodelay(true)?;
        let sizes = [up, down, usize::from(polls)];
        stream.write_all(sizes.map(|size| (size as u64).to_le_bytes()).as_flattened())?;
        stream.set_nonblocking(polls)?;
        Ok(Exchange { stream, polls, request: vec![1; up], answer: vec![0; down] })
    }

    /// Opens a plain connection and waits for a byte from the child process.
    fn connect(&self) {
        let stream = TcpStream::connect(("127.0.0.1", self.doors));
        let _ = black_box(stream.map(|mut stream| stream.read_exact(&mut [0])));
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A plain connection over which the two ends repeatedly exchange a fixed number of bytes in each direction.
struct Exchange {
    stream: TcpStream,
    polls: bool,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Exchange {
    fn once(&mut self) {
        let sent = self.stream.write_all(&self.request);
        let read = if self.answer.len() > 1 << 20 {
            self.stream.read_exact(&mut vec![0; self.answer.len()])
        } else {
            receive(&mut self.stream, &mut self.answer, self.polls)
        };
        assert!(sent.is_ok() && read.is_ok(), "the process with the plain sockets has disconnected");
    }
}

/// Function that runs an operation a given number of times and returns the total nanoseconds.
type Timed<'a> = Box<dyn FnMut(u32) -> f64 + 'a>;

fn repeat<'a>(mut body: impl FnMut() + 'a) -> Timed<'a> {
    Box::new(move |count| {
        let start = Instant::now();
        for _ in 0..count {
            body();
        }
        start.elapsed().as_nanos() as f64
    })
}

/// Names of the rows to measure; an empty list selects all rows.
struct Rows {
    only: Vec<String>,
}

impl Rows {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|row| row == name)
    }

    /// Measures `ours` and the functions of `beside`, in this order those of [`BESIDE`], alternately and prints the
    /// minimum nanoseconds per iteration of each. A slice is one measurement of `count` iterations. Several slices of the same function
    /// follow each other, because the scheduler keeps a thread near the process with which it
    /// communicates only if that process seldom changes.
    fn row<'a>(&self, name: &str, count: u32, slices: u32, ours: Timed<'a>, beside: Vec<Timed<'a>>) {
        let mut all = vec![ours];
        all.extend(beside);
        let mut best = vec![f64::INFINITY; all.len()];
        let turns = slices.min(6);
        for _ in 0..turns {
            for (best, timed) in best.iter_mut().zip(&mut all) {
                for _ in 0..slices / turns {
                    *best = best.min(timed(count) / f64::from(count));
                }
            }
        }
        for (best, who) in best.iter().zip([""].iter().chain(&BESIDE)) {
            println!("{name}{who}={best:.1}");
        }
    }
}

/// Suffixes of rows for plain sockets that block and that poll.
const BESIDE: [&str; 2] = ["@raw", "@polled"];

/// Returns functions that exchange the given numbers of bytes over plain sockets that block and that poll.
fn exchanges<'a>(raw: &Raw, up: usize, down: usize) -> Result<Vec<Timed<'a>>> {
    let made = [false, true].map(|polls| raw.exchange(up, down, polls));
    made.into_iter().map(|exchange| exchange.map(|mut exchange| repeat(move || exchange.once()))).collect()
}

/// A session, and the module of the library that its remote end has loaded.
struct Side {
    session: Ref<Session>,
    module: Module,
}

impl Side {
    fn connect(port: u16, key: Option<&str>) -> Result<Ref<Session>> {
        Ok(registry::get("rpc.connect")?.call(("127.0.0.1", port, key))?.get::<Ref<Session>>()?)
    }

    fn new(port: u16, key: Option<&str>, library: &[u8]) -> Result<Side> {
        let session = Side::connect(port, key)?;
        let module = session.load_file(&session.send_file(Bytes::from(library), None)?)?;
        Ok(Side { session, module })
    }

    fn function(&self, name: &str) -> Result<PackedFunc> {
        Ok(self.module.get_function(name)?)
    }

    fn tensor(&self, bytes: usize) -> Result<Ref<RemoteTensor>> {
        let shape = Shape::from(&[bytes as i64][..]);
        Ok(self.session.allocate(shape, DType::UINT8, None)?.get::<Ref<RemoteTensor>>()?)
    }
}

fn check<T, E: std::fmt::Debug>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error:?}"),
    }
}

/// Measures calls and callbacks over the session `side`.
fn calls(rows: &Rows, raw: &Raw, side: &Side, suffix: &str) -> Result<()> {
    let seal = if suffix.is_empty() { 0 } else { SEAL };
    let nop = side.function("nop")?;
    let name = format!("session_call_0{suffix}");
    if rows.wants(&name) {
        let ours = repeat(|| drop(check(nop.call(()))));
        rows.row(&name, 50, 300, ours, exchanges(raw, CALL + seal, NONE + seal)?);
    }
    let name = format!("session_call_3_ints{suffix}");
    if rows.wants(&name) {
        let ours = repeat(|| drop(check(nop.call((1, 2, 3)))));
        rows.row(&name, 50, 300, ours, exchanges(raw, CALL + 3 * INT + seal, NONE + seal)?);
    }
    let name = format!("session_callback_0{suffix}");
    if rows.wants(&name) {
        let call_n = side.function("call_n")?;
        let callback = PackedFunc::new(|_| Ok(Any::NONE));
        // The remote end measures the time: for it, a callback is a call and its answer.
        let ours: Timed<'_> =
            Box::new(|count| check(check(call_n.call((&callback, count))).get::<f64>()) * f64::from(count));
        rows.row(&name, 50, 300, ours, exchanges(raw, CALL + seal, NONE + seal)?);
    }
    for (threads, text) in [(2, "two"), (4, "four")] {
        let name = format!("session_{text}_threads_per_call{suffix}");
        if !rows.wants(&name) {
            continue;
        }
        let ours = parallel(threads, |count| {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| (0..count).for_each(|_| drop(check(nop.call((1, 2, 3))))));
                }
            });
        });
        // Four threads that poll would keep each other from the processors.
        let kinds: &[bool] = if threads == 2 { &[false, true] } else { &[false] };
        let mut beside = Vec::new();
        for polls in kinds {
            let exchanges = (0..threads).map(|_| raw.exchange(CALL + 3 * INT + seal, NONE + seal, *polls));
            let mut exchanges = exchanges.collect::<Result<Vec<_>>>()?;
            beside.push(parallel(threads, move |count| {
                std::thread::scope(|scope| {
                    for exchange in &mut exchanges {
                        scope.spawn(|| (0..count).for_each(|_| exchange.once()));
                    }
                });
            }));
        }
        rows.row(&name, 400, 24, ours, beside);
    }
    Ok(())
}

/// Returns a function that measures `count` iterations on several threads. The function calls `body` with the
/// share of `count` of each thread, and `body(n)` must run `n` iterations on each of the threads at the same
/// time.
fn parallel<'a>(threads: u32, mut body: impl FnMut(u32) + 'a) -> Timed<'a> {
    Box::new(move |count| {
        let start = Instant::now();
        body(count / threads);
        start.elapsed().as_nanos() as f64
    })
}

/// Measures transfers of tensors to the remote end and back: 64 MiB into newly allocated memory at either
/// end, and 4 KiB into the same memory each time.
fn transfers(rows: &Rows, raw: &Raw, side: &Side, suffix: &str) -> Result<()> {
    let here = check(registry::get("anyfn.tensor_zeros"));
    let fresh = |bytes: usize| -> Tensor {
        check(check(here.call((Shape::from(&[bytes as i64][..]), DType::UINT8, Device::CPU))).get::<Tensor>())
    };
    // Filled, because the memory of data that is sent has been touched.
    let source = fresh(LARGE);
    // SAFETY: no other code holds a reference to the tensor.
    unsafe { source.view().as_mut_slice::<u8>() }?.fill(1);
    let large_call = SERVICE + 3 * INT;
    let cipher = if suffix.is_empty() { None } else { Some(Cipher::new()?) };
    for up in [true, false] {
        let name = format!("session_{}_64mib{suffix}", if up { "up" } else { "down" });
        if !rows.wants(&name) {
            continue;
        }
        let there = side.tensor(LARGE)?;
        check(there.write(source.view(), None));
        let ours = repeat(|| {
            if up {
                check(check(side.tensor(LARGE)).write(source.view(), None));
            } else {
                check(there.read(fresh(LARGE).view(), None));
            }
        });
        let beside = match &cipher {
            Some(cipher) => Box::new(|_: u32| cipher.pipelined(source_bytes(&source))) as Timed<'_>,
            None => {
                let bytes = large_call + transferred(LARGE);
                let (up, down) = if up { (bytes, NONE) } else { (large_call, bytes) };
                let mut exchange = raw.exchange(up, down, false)?;
                repeat(move || exchange.once())
            }
        };
        rows.row(&name, 1, 6, ours, vec![beside]);
    }
    let source = fresh(SMALL);
    let there = side.tensor(SMALL)?;
    let into = fresh(SMALL);
    let seal = if suffix.is_empty() { 0 } else { 2 * SEAL };
    for up in [true, false] {
        let name = format!("session_{}_4kib{suffix}", if up { "up" } else { "down" });
        if !rows.wants(&name) {
            continue;
        }
        let (request, bytes) = (large_call + seal / 2, transferred(SMALL) + seal);
        let (sent, received) = if up { (request + bytes, NONE + seal / 2) } else { (request, bytes + NONE) };
        let ours = repeat(|| {
            check(if up { there.write(source.view(), None) } else { there.read(into.view(), None) });
        });
        rows.row(&name, 50, 200, ours, exchanges(raw, sent, received)?);
    }
    Ok(())
}

fn source_bytes(tensor: &Tensor) -> &[u8] {
    // SAFETY: the tensor is only read while the slice borrows it.
    check(unsafe { tensor.view().as_slice::<u8>() })
}

/// Cipher states of both ends of an encrypted session, in one process and without a connection.
struct Cipher {
    sealing: StatelessTransportState,
    opening: StatelessTransportState,
}

impl Cipher {
    fn new() -> Result<Cipher> {
        let pattern = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
        let mut one = snow::Builder::new(pattern.parse()?).psk(0, &[7; 32])?.build_initiator()?;
        let mut other = snow::Builder::new(pattern.parse()?).psk(0, &[7; 32])?.build_responder()?;
        let (mut message, mut payload) = ([0; 128], [0; 128]);
        let size = one.write_message(&[], &mut message)?;
        other.read_message(&message[..size], &mut payload)?;
        let size = other.write_message(&[], &mut message)?;
        one.read_message(&message[..size], &mut payload)?;
        Ok(Cipher {
            sealing: one.into_stateless_transport_mode()?,
            opening: other.into_stateless_transport_mode()?,
        })
    }

    /// Returns the nanoseconds that an ideal pipeline takes to encrypt and decrypt `bytes`: the time of the
    /// slower of the two steps. Each step is measured on one thread, in memory that stays in the cache.
    fn pipelined(&self, bytes: &[u8]) -> f64 {
        let (mut record, mut plain) = (vec![0; RECORD + 16], vec![0; RECORD]);
        let parts = || bytes.chunks(RECORD).enumerate();
        let start = Instant::now();
        for (number, part) in parts() {
            check(self.sealing.write_message(number as u64, part, &mut record));
        }
        let sealed = start.elapsed();
        let first = &bytes[..RECORD.min(bytes.len())];
        let size = check(self.sealing.write_message(0, first, &mut record));
        let start = Instant::now();
        for _ in parts() {
            // Opens the first record repeatedly instead of each record once. All but the last have the same size.
            check(self.opening.read_message(0, &record[..size], &mut plain));
        }
        sealed.max(start.elapsed()).as_nanos() as f64
    }
}

/// Measures the time from the start of connecting to a server until the server's first answer.
fn connecting(rows: &Rows, raw: &Raw, port: u16, key: Option<&str>, suffix: &str) {
    let name = format!("session_connect{suffix}");
    if rows.wants(&name) {
        let mut kept = None;
        let ours: Timed<'_> = Box::new(move |_| {
            drop(kept.take());
            // The end of the previous session is not part of the measurement.
            std::thread::sleep(Duration::from_millis(20));
            let start = Instant::now();
            let session = check(Side::connect(port, key));
            check(session.info());
            let took = start.elapsed().as_nanos() as f64;
            kept = Some(session);
            took
        });
        rows.row(&name, 1, 20, ours, vec![repeat(|| raw.connect())]);
    }
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["raw"] {
        return raw_server();
    }
    let [port, port_with_key, key, library, only @ ..] = &words[..] else {
        return Err("expected the ports of two servers, a key and a library".into());
    };
    let (rows, raw, library) = (Rows { only: only.to_vec() }, Raw::start()?, std::fs::read(library)?);
    for (port, key, suffix) in [(port, None, ""), (port_with_key, Some(key.as_str()), "_key")] {
        let port = port.parse()?;
        {
            let side = Side::new(port, key, &library)?;
            calls(&rows, &raw, &side, suffix)?;
            transfers(&rows, &raw, &side, suffix)?;
        }
        connecting(&rows, &raw, port, key, suffix);
    }
    Ok(())
}
