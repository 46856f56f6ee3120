//! Threads that serve: the serving loop, the ticker, and workers.

use anyfn_protocol::endpoint::ROOT;

use super::*;

impl Connection {
    /// Serves calls on this thread until the session ends. Returns the error that ended the
    /// session.
    pub fn serve(&self) -> Error {
        self.endpoint.table().serve();
        let (line, endpoint) = (self.line.clone(), self.endpoint.clone());
        let ticker =
            std::thread::Builder::new().name("anyfn-rpc-tick".into()).spawn(move || line.tick(&endpoint));
        let why = match self.line.wait(&self.endpoint, ROOT, None, None) {
            Ok(_) => error!("InternalError", "the session ended, but no reason was recorded"),
            Err(error) => error,
        };
        self.endpoint.end(why.clone());
        if let Ok(ticker) = ticker {
            let _ = ticker.join();
        }
        why
    }

    /// Returns true if the session has ended. First ends the session if a call has taken longer
    /// than the policy allows. The session process polls this function and exits if a call still
    /// runs afterwards, because code that does not return cannot be stopped otherwise.
    pub(crate) fn is_over(&self) -> bool {
        self.endpoint.end_if_late(self.line.origin.elapsed());
        self.ended().is_some()
    }
}

impl Line {
    /// Main function of the ticker thread, which assists the serving thread. It checks time limits,
    /// and reads from the socket while the serving thread runs a long call.
    fn tick(&self, endpoint: &Arc<Endpoint>) {
        // Call of the serving thread at the previous check.
        let mut seen = 0;
        let mut table = endpoint.table();
        loop {
            if table.ended().is_some() {
                return;
            }
            if endpoint.is_idle(&mut table, self.origin.elapsed()) {
                drop(table);
                return endpoint.end_idle();
            }
            let busy = table.serving();
            let is_long = busy == std::mem::replace(&mut seen, busy);
            let pause = match busy {
                0 => Duration::from_millis(500),
                _ if !is_long => Duration::from_millis(1),
                _ => {
                    // Calls that wait behind the long one get their own threads.
                    while self.workers.load(Ordering::Relaxed) < endpoint.limits().calls as usize
                        && let Some(call) = table.next_behind()
                    {
                        drop(table);
                        self.on_worker(endpoint, call);
                        table = endpoint.table();
                    }
                    if table.reading {
                        Duration::from_millis(1)
                    } else {
                        table.reading = true;
                        drop(table);
                        let read = self.read(endpoint, None);
                        table = endpoint.table();
                        table.reading = false;
                        table.wake_reader(u64::MAX);
                        if let Err(error) = read {
                            drop(table);
                            return endpoint.end(error);
                        }
                        continue;
                    }
                }
            };
            self.dozing.store(pause > LOOK, Ordering::Relaxed);
            table = self.awake.wait_timeout(table, pause).unwrap_or_else(PoisonError::into_inner).0;
            self.dozing.store(false, Ordering::Relaxed);
        }
    }

    /// Runs an incoming call on a new thread.
    pub(super) fn on_worker(&self, endpoint: &Arc<Endpoint>, call: Incoming) {
        self.workers.fetch_add(1, Ordering::Relaxed);
        let (workers, running, id) = (self.workers.clone(), endpoint.clone(), call.id());
        let started = std::thread::Builder::new().name("anyfn-rpc-call".into()).spawn(move || {
            running.execute(call);
            workers.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(error) = started {
            self.workers.fetch_sub(1, Ordering::Relaxed);
            endpoint.fail(id, &error!("RuntimeError", "cannot start a thread for the call: {error}"));
        }
    }
}
