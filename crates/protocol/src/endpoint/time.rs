//! Time limits of a session. Callers pass the current time as the time since an origin of their
//! choice.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use core::time::Duration;

use anyfn::{Result, bail, error};

use super::{Endpoint, Table};
use crate::frame::FrameKind;

/// Time without received bytes after which a waiting client sends a `Ping`, to check that the server is
/// alive.
const ASK: Duration = Duration::from_secs(5);

/// Time limit for the peer to send any bytes after a `Ping`. After that, the session fails.
pub(crate) const ANSWER: Duration = Duration::from_secs(15);

/// Times of the last events of a session.
#[derive(Default)]
pub(super) struct Liveness {
    /// Approximate time of the last received bytes: the time at which a check last noticed that bytes had
    /// arrived.
    heard: Duration,
    /// Time at which a `Ping` was sent; `None` if bytes have arrived since.
    asked: Option<Duration>,
    /// Approximate time at which the last incoming call ended. It is set when a check notices `has_worked`, which may be later.
    worked: Duration,
    /// True if an incoming call has ended since `worked` was last updated.
    pub(super) has_worked: bool,
}

impl Endpoint {
    /// Updates and returns the approximate time of the last received bytes. `now` is the current time.
    pub fn heard(&self, table: &mut Table, now: Duration) -> Duration {
        let liveness = &mut table.liveness;
        if self.has_heard.swap(false, Ordering::Relaxed) {
            (liveness.heard, liveness.asked) = (now, None);
        }
        liveness.heard
    }

    /// Checks, at a client that waits for a result and has received nothing for a while, that the server is alive. Queues a `Ping`
    /// after 5 seconds without received bytes.
    ///
    /// # Errors
    /// Returns `ConnectionError` if the server has not answered a `Ping` for 15 seconds.
    pub fn check_silence(&self, now: Duration) -> Result<()> {
        // A client reads only while it waits for a result, so its silence means nothing. Dead clients are detected by the limit
        // on idle sessions.
        if self.is_server() {
            return Ok(());
        }
        let mut table = self.table();
        let silent = now.saturating_sub(self.heard(&mut table, now));
        match table.liveness.asked {
            // The peer may have been silent for a long time because no request was sent to it.
            Some(asked) if now.saturating_sub(asked) > ANSWER => {
                bail!("ConnectionError", "{}: no answer for {} seconds", self.peer, silent.as_secs());
            }
            None if silent > ASK => {
                table.liveness.asked = Some(now);
                self.push_reply(&mut table, (FrameKind::Ping, 0, Vec::new()));
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns true if the session has been idle for at least its limit. A session is idle while no
    /// bytes arrive and no incoming call runs. Incoming calls are not considered while this end
    /// waits for a result from the peer.
    pub fn is_idle(&self, table: &mut Table, now: Duration) -> bool {
        if core::mem::take(&mut table.liveness.has_worked) {
            table.liveness.worked = now;
        }
        let waits = table.waits();
        let last = self.heard(table, now).max(table.liveness.worked);
        self.limits.idle_seconds > 0
            && (waits || table.running.is_empty())
            && now.saturating_sub(last).as_secs() >= self.limits.idle_seconds
    }

    /// Ends an idle session; see [`Endpoint::is_idle`].
    pub fn end_idle(&self) {
        self.say_bye(b"the session was idle for too long");
        self.end(error!("ConnectionError", "{}: idle for too long", self.peer));
    }

    /// Ends the session if an incoming call has taken longer than the time limit of a call.
    pub fn end_if_late(&self, now: Duration) {
        let limit = self.limits.call_seconds;
        if limit == 0 {
            return;
        }
        let is_late = self
            .table()
            .running
            .values_mut()
            .any(|call| now.saturating_sub(*call.seen.get_or_insert(now)).as_secs() >= limit);
        if is_late {
            let why = format!("a call exceeded the limit of {limit} seconds (`call_seconds`)");
            self.say_bye(why.as_bytes());
            self.end(error!("TimeoutError", "{}: {why}", self.peer));
        }
    }

    /// Applies all time limits. Event loops call this method about once per second. `now` is the
    /// time since any fixed origin. The output then contains a `Ping` if a client waits for a
    /// result and has received nothing for 5 seconds.
    ///
    /// # Errors
    /// Returns the error that ended the session: a limit was exceeded, now or before.
    pub fn tick(self: &Arc<Self>, now: Duration) -> Result<()> {
        self.end_if_late(now);
        if self.is_idle(&mut self.table(), now) {
            self.end_idle();
        }
        if self.table().waits()
            && let Err(error) = self.check_silence(now)
        {
            self.end(error);
        }
        self.ended().map_or(Ok(()), Err)
    }
}
