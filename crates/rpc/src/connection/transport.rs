//! Reading from and writing to the socket. Writing never deadlocks with a peer that also blocks on writing.

use anyfn_protocol::endpoint::Input;

use super::*;

/// Time after which the connection fails if the peer accepts no bytes.
const GIVE_UP: Duration = Duration::from_secs(20);

impl Line {
    /// Reads from the socket once and dispatches all complete messages. Returns false if no bytes
    /// have arrived. The caller must have set `Table::reading`.
    pub(super) fn read(&self, endpoint: &Arc<Endpoint>, reading: Option<&Reading>) -> Result<bool> {
        let interrupt = reading.map(|reading| reading as &dyn Interrupt);
        let mut input = endpoint.input();
        if let Some(deadline) = reading.and_then(|reading| reading.deadline) {
            let left = deadline.saturating_sub(self.origin.elapsed());
            if left < LOOK && !self.socket.poll(true, false, left).unwrap_or(true) {
                return Ok(false);
            }
        }
        // Bytes that a writing thread has read while it waited.
        if input.waiting() > 0 && endpoint.hand_out(&mut input, interrupt)? {
            drop(input);
            return endpoint.settle().map(|()| true);
        }
        match self.receive(&mut input, true) {
            Ok(()) => endpoint.note_heard(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                drop(input);
                return self.look_around(endpoint).map(|()| false);
            }
            // The signal's handler runs when the waiting thread checks for signals.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
            Err(error) => return Err(self.failed(endpoint, &error)),
        }
        endpoint.hand_out(&mut input, interrupt)?;
        drop(input);
        endpoint.settle().map(|()| true)
    }

    fn receive(&self, input: &mut Input, wait: bool) -> io::Result<()> {
        let room = input.room();
        let count =
            if wait { self.socket.read_polling(room, &self.polling) } else { self.socket.read(room, false) }?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection"));
        }
        input.received(count).map_err(|forged| io::Error::new(io::ErrorKind::InvalidData, forged.to_string()))
    }

    /// Sends queued replies after a period without received bytes. A client also checks with a `Ping` that
    /// the server is alive.
    pub(super) fn look_around(&self, endpoint: &Endpoint) -> Result<()> {
        endpoint.check_silence(self.origin.elapsed())?;
        endpoint.flush_replies()
    }

    pub(super) fn write_all(&self, endpoint: &Endpoint, mut first: &[u8], mut second: &[u8]) -> Result<()> {
        // Time at which the socket was first full; the clock is read only when needed.
        let mut full = None;
        while !first.is_empty() || !second.is_empty() {
            match self.socket.write(first, second) {
                Ok(count) => {
                    full = None;
                    let of_first = count.min(first.len());
                    first = &first[of_first..];
                    second = &second[count - of_first..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.make_room(endpoint, *full.get_or_insert_with(Instant::now))?;
                }
                Err(error) => return Err(self.failed(endpoint, &error)),
            }
        }
        Ok(())
    }

    /// Waits for a short time until the peer accepts bytes. Reads from the socket in the meantime,
    /// because the peer may be blocked until this end reads. `full` is the time at which the peer
    /// stopped accepting bytes.
    fn make_room(&self, endpoint: &Endpoint, full: Instant) -> Result<()> {
        if let Some(error) = endpoint.ended() {
            return Err(error);
        }
        // Only if no other thread reads. What is read stays in the buffer, and the next waiting thread hands it out.
        let readable = match endpoint.try_input() {
            Some(mut input) => {
                let room = input.waiting() < endpoint.limits().message_bytes;
                let readable = self.socket.poll(room, true, LOOK).unwrap_or(false) && room;
                if readable {
                    match self.receive(&mut input, false) {
                        Ok(()) => endpoint.note_heard(),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(self.failed(endpoint, &error)),
                    }
                }
                readable
            }
            None => self.socket.poll(false, true, LOOK).unwrap_or(false),
        };
        let limit = match endpoint.limits().idle_seconds {
            0 => GIVE_UP,
            idle => GIVE_UP.min(Duration::from_secs(idle)),
        };
        let silent = |now: Duration| now.saturating_sub(endpoint.heard(&mut endpoint.table(), now));
        if !readable && full.elapsed() > limit && silent(self.origin.elapsed()) > limit {
            bail!(
                "ConnectionError",
                "{}: the peer has not read any bytes for {} seconds",
                endpoint.peer(),
                limit.as_secs()
            );
        }
        Ok(())
    }
}
