//! Lifetime of a connection: the serving loop, checks of time limits, and the end of the connection.

use super::*;

impl Connection {
    /// Serves calls on this thread until the connection ends. Returns the error that ended it.
    pub fn serve(self: &Arc<Self>) -> Error {
        lock(&self.state).waiters.insert(ROOT, Waiter::default());
        let this = self.clone();
        let ticker = std::thread::Builder::new().name("anyfn-rpc-tick".into()).spawn(move || this.tick());
        let why = match self.wait(ROOT, None, None) {
            Ok(_) => error!("InternalError", "the session ended, but no reason was recorded"),
            Err(error) => error,
        };
        self.end(why.clone());
        if let Ok(ticker) = ticker {
            let _ = ticker.join();
        }
        why
    }

    /// Returns true if the connection has ended. First ends it if a call has taken longer than the policy
    /// allows. The session process polls this function and exits if a call still runs afterwards, because
    /// code that does not return cannot be stopped otherwise.
    pub(crate) fn is_over(&self) -> bool {
        let limit = self.policy.call_seconds;
        let late = {
            let state = lock(&self.state);
            limit > 0
                && state
                    .running
                    .values()
                    .any(|call| call.seen.get_or_init(Instant::now).elapsed().as_secs() >= limit)
        };
        if late {
            let why = format!("a call exceeded the limit of {limit} seconds (`call_seconds`)");
            self.say_bye(why.as_bytes());
            self.end(error!("TimeoutError", "{}: {why}", self.peer));
        }
        self.ended().is_some()
    }

    /// Main function of the ticker thread, which assists the serving thread: it checks time limits, and reads
    /// from the socket while the serving thread runs a long call.
    pub(super) fn tick(self: Arc<Self>) {
        // Call of the serving thread at the previous check.
        let mut seen = 0;
        let mut state = lock(&self.state);
        loop {
            if state.ended.is_some() {
                return;
            }
            if std::mem::take(&mut state.has_worked) {
                state.worked = Instant::now();
            }
            let waits = state.waiters.iter().any(|(id, waiter)| *id != ROOT && waiter.busy == 0);
            let heard = self.heard(&mut state);
            if self.policy.idle_seconds > 0
                && (waits || state.running.is_empty())
                && heard.max(state.worked).elapsed().as_secs() >= self.policy.idle_seconds
            {
                drop(state);
                self.say_bye(b"the session was idle for too long");
                return self.end(error!("ConnectionError", "{}: idle for too long", self.peer));
            }
            let busy = state.waiters.get(&ROOT).map_or(0, |root| root.busy);
            let is_long = busy == std::mem::replace(&mut seen, busy);
            let pause = match busy {
                0 => Duration::from_millis(500),
                _ if !is_long => Duration::from_millis(1),
                _ => {
                    // Calls that wait behind the long one get their own threads.
                    while state.workers < self.policy.calls as usize
                        && let Some(call) =
                            state.waiters.get_mut(&ROOT).and_then(|root| root.incoming.pop_front())
                    {
                        state.workers += 1;
                        drop(state);
                        self.on_worker(call);
                        state = lock(&self.state);
                    }
                    if state.reading {
                        Duration::from_millis(1)
                    } else {
                        state.reading = true;
                        drop(state);
                        let read = self.read(None);
                        state = lock(&self.state);
                        state.reading = false;
                        Self::wake_reader(&state, u64::MAX);
                        if let Err(error) = read {
                            drop(state);
                            return self.end(error);
                        }
                        continue;
                    }
                }
            };
            self.dozing.store(pause > LOOK, Ordering::Relaxed);
            state = self.awake.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
            self.dozing.store(false, Ordering::Relaxed);
        }
    }

    /// Sends a `Bye` message and ends the connection.
    pub(crate) fn close(&self) {
        if self.ended().is_none() {
            self.say_bye(&[]);
            self.end(Error::untraced("ConnectionError", &format!("{}: the session was closed", self.peer)));
        }
    }

    /// Sends a `Bye` message with the reason `why`, unless sending would block because the peer has stopped
    /// reading.
    fn say_bye(&self, why: &[u8]) {
        if let Ok(mut out) = self.out.try_lock()
            && self.socket.has_room()
        {
            let _ =
                frame::write_message(FrameKind::Bye, 0, why, |header, part| self.put(&mut out, header, part));
        }
    }

    /// Ends the connection with the error `why`. Waiting threads receive the error, and all objects that the
    /// peer held are released.
    pub(crate) fn end(&self, why: Error) {
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(why);
        for running in state.running.values() {
            running.cancelled.store(true, Ordering::Relaxed);
        }
        state.waiters.values().for_each(|waiter| waiter.wake());
        let uploads = std::mem::take(&mut state.uploads);
        drop(state);
        self.awake.notify_all();
        self.socket.shut_down();
        drop(uploads);
        let held = lock(&self.handles).clear();
        drop(held);
    }

    /// Releases a handle whose proxy was dropped. `count` is the number of times that the peer has sent the
    /// handle. The release is sent with the next message. If `at_once` is true or many releases are pending, it
    /// is sent immediately, unless another thread is writing at that moment. In that case, too, it is sent with
    /// the next message.
    pub(crate) fn release(&self, handle: u64, count: u64, at_once: bool) {
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            return;
        }
        state.releases.push((handle, count));
        self.has_more.store(true, Ordering::Relaxed);
        let many = state.releases.len() >= RELEASES;
        drop(state);
        if (many || at_once)
            && let Ok(mut out) = self.out.try_lock()
        {
            let _ = self.put_replies(&mut out);
        }
    }

    pub(crate) fn handles_locked(&self) -> MutexGuard<'_, Handles> {
        lock(&self.handles)
    }
}
