//! Copying of bytes between two sides, in both directions, with bounded memory.

use std::time::{Duration, Instant};

use super::side::{Side, Stop};
use crate::poll::{Polled, poll};

/// Time after which a relay with heartbeats ends if one side accepts no bytes. A page may calculate for a while without reading.
/// Without heartbeats, the session at one end has limits of its own.
const FULL: Duration = Duration::from_secs(120);

/// Time after which the relay ends if one side is closed, and the other one does not accept what was received from it.
const CLOSED: Duration = Duration::from_secs(2);

/// Number of missed heartbeats after which a side is treated as disconnected.
const MISSED: u32 = 3;

/// Copies bytes between two sides until one of them ends, and then closes the other one. While one side does not accept bytes, none
/// are read from the other one. `heartbeat` is the time after which a silent side is asked for a sign of life. `ended` is called
/// with the reason, before the sides are closed.
pub(super) fn relay(
    mut first: impl Side,
    mut second: impl Side,
    heartbeat: Option<Duration>,
    ended: impl FnOnce(&str),
) {
    let mut times = Times { full: [None; 2], closed: [None; 2], asked: Instant::now(), free: Instant::now() };
    loop {
        match turn(&mut first, &mut second, heartbeat, &mut times) {
            Ok(()) => {}
            Err((of_first, why)) => {
                ended(&why);
                let told = if why.is_empty() { "the peer disconnected" } else { &why };
                // A side that has ended gets no reason; the other one does, unless the end was regular.
                if of_first {
                    second.close(if heartbeat.is_some() { told } else { &why });
                    first.close("");
                } else {
                    first.close(if heartbeat.is_some() { told } else { &why });
                    second.close("");
                }
                return;
            }
        }
    }
}

struct Times {
    /// Time since which each side accepts no bytes.
    full: [Option<Instant>; 2],
    /// Time since which each side is closed, although bytes may be left to receive.
    closed: [Option<Instant>; 2],
    /// Time of the last heartbeat.
    asked: Instant,
    /// Last time at which a side did not accept bytes. Such a side does not receive heartbeats, and the other one is not read.
    free: Instant,
}

/// Copies what has arrived, and then waits for more. The error says which side has ended, true for the first, and why.
fn turn(
    first: &mut impl Side,
    second: &mut impl Side,
    heartbeat: Option<Duration>,
    times: &mut Times,
) -> Result<(), (bool, String)> {
    let over = |is_first: bool| {
        move |stop| match stop {
            Stop::Over(why) => (is_first, why),
            Stop::Wait => (is_first, String::new()),
        }
    };
    let mut is_free = [first.flush().map_err(over(true))?, second.flush().map_err(over(false))?];
    let mut moved = false;
    if is_free[1] {
        match first.receive() {
            Ok(bytes) => {
                second.send(bytes).map_err(over(false))?;
                is_free[1] = second.flush().map_err(over(false))?;
                moved = true;
            }
            Err(Stop::Wait) => {}
            Err(stop) => return Err(over(true)(stop)),
        }
    }
    if is_free[0] {
        match second.receive() {
            Ok(bytes) => {
                first.send(bytes).map_err(over(true))?;
                is_free[0] = first.flush().map_err(over(true))?;
                moved = true;
            }
            Err(Stop::Wait) => {}
            Err(stop) => return Err(over(false)(stop)),
        }
    }
    let now = Instant::now();
    for (at, full) in times.full.iter_mut().enumerate() {
        *full = if is_free[at] { None } else { full.or(Some(now)) };
        if heartbeat.is_some() && full.is_some_and(|since| now.duration_since(since) > FULL) {
            return Err((at == 0, format!("a peer has not read any bytes for {} seconds", FULL.as_secs())));
        }
        let is_closed = times.closed[1 - at].is_some_and(|since| now.duration_since(since) > CLOSED);
        if is_closed && full.is_some_and(|since| now.duration_since(since) > CLOSED) {
            return Err((at == 1, String::new()));
        }
    }
    if is_free != [true; 2] {
        times.free = now;
    }
    if let Some(heartbeat) = heartbeat
        && now.duration_since(times.asked) >= heartbeat
    {
        times.asked = now;
        for (is_first, heard) in [(true, first.heard()), (false, second.heard())] {
            let silent = now.duration_since(heard.max(times.free));
            if silent > heartbeat * MISSED {
                return Err((is_first, format!("no answer for {} seconds", silent.as_secs())));
            }
        }
        if is_free[0] {
            first.ping();
            is_free[0] = first.flush().map_err(over(true))?;
        }
        if is_free[1] {
            second.ping();
            is_free[1] = second.flush().map_err(over(false))?;
        }
    }
    if moved {
        return Ok(());
    }
    let watch = |side: &dyn Side, at: usize, reads: bool| {
        let writes = !is_free[at];
        if !reads && !writes && times.closed[at].is_none() {
            Polled::closed(side.fd())
        } else {
            Polled::ready(side.fd(), reads, writes)
        }
    };
    let mut waits = [watch(first, 0, is_free[1]), watch(second, 1, is_free[0])];
    let timed = times.full.iter().any(Option::is_some).then_some(Duration::from_secs(1));
    let timeout = [timed, heartbeat].into_iter().flatten().min();
    if poll(&mut waits, timeout).is_err() {
        // The kernel is out of memory; trying again is the only option.
        std::thread::sleep(Duration::from_millis(100));
    }
    for (at, wait) in waits.iter().enumerate() {
        if wait.is_closed() && times.closed[at].is_none() {
            times.closed[at] = Some(Instant::now());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::super::messages::{Message, WebSocket};
    use super::super::side::Web;
    use super::*;

    /// Returns the two ends of a connection: that of a relay, and that of its peer.
    fn pair() -> (Web, WebSocket<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let here = WebSocket::new(listener.accept().unwrap().0, true, &[]);
        (Web::new(here).unwrap(), WebSocket::new(peer, false, &[]))
    }

    /// A page that calculates does not read for a while. Neither it nor the peer whose bytes wait for it has disconnected.
    #[test]
    fn heartbeats_do_not_end_a_session_whose_peer_does_not_read() {
        const COUNT: usize = 512;
        let heartbeat = Duration::from_millis(100);
        let ((first, mut sender), (second, mut page)) = (pair(), pair());
        let relayed = std::thread::spawn(move || {
            let mut reason = String::new();
            relay(first, second, Some(heartbeat), |why| reason = why.to_owned());
            reason
        });
        let sent = std::thread::spawn(move || {
            for _ in 0..COUNT {
                sender.write(&vec![7; 64 << 10]).unwrap();
                sender.flush().unwrap();
            }
            // Answers heartbeats until the relay ends.
            while sender.read().is_ok() && sender.flush().is_ok() {}
        });
        std::thread::sleep(heartbeat * MISSED * 3);
        let mut received = 0;
        while received < COUNT << 16 {
            match page.read().unwrap() {
                Message::Binary(bytes) => received += bytes.len(),
                Message::Ping => {}
                other => panic!("expected the bytes of the sender, got {other:?}"),
            }
        }
        // From now on, the page answers no heartbeat.
        assert!(relayed.join().unwrap().starts_with("no answer for"));
        sent.join().unwrap();
    }
}
