//! The decisions of the tracker as a state machine: messages and the time go in; records for the journal and answers come out.
//!
//! The state that survives a restart changes only by [`Record`]s: [`Tracker::restore`] repeats them. The rest (connections, deadlines,
//! calls that wait for an answer) is rebuilt by the servers and clients, which repeat their messages after they have connected again.
//! Times are milliseconds of a clock that the caller chooses. If that clock jumps, deadlines move, but no device is leased twice or lost.

mod queue;
mod summary;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::message::{Ask, AtServer, Granted, Labels, Leased, Offer, Sync, Synced};

/// Milliseconds since an origin of the caller's choice.
pub type Millis = u64;

/// Number of a connection, which the caller chooses.
pub type Connection = u64;

/// Number of a call that waits for its answer, which the caller chooses.
pub type Call = u64;

/// Limits and time limits of a tracker.
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum number of registered servers.
    pub devices: usize,
    /// Maximum number of waiting requests.
    pub requests: usize,
    /// Maximum number of waiting requests of one user.
    pub requests_of_user: usize,
    /// Time without a report after which a server is offline.
    pub lost: Millis,
    /// Time after which an offline server is removed.
    pub forget: Millis,
    /// Time that a server may take to accept the key of a lease.
    pub offer: Millis,
    /// Time that a client may take to begin the session of its lease.
    pub connect: Millis,
    /// Time for which a request without a connection keeps its position in the queue.
    pub detached: Millis,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            devices: 1024,
            requests: 4096,
            requests_of_user: 256,
            lost: 15_000,
            forget: 600_000,
            offer: 10_000,
            connect: 15_000,
            detached: 10_000,
        }
    }
}

/// Change of the state that survives a restart; one line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A server has registered, or changed what it registers. If its instance has changed, its leases have ended.
    Device(Registration),
    /// A server was removed, and its leases have ended.
    Forget(String),
    /// A request was added to the queue.
    Request(Entry),
    /// A request was removed from the queue without a lease.
    Drop(RequestId),
    /// A request got leases.
    Grant {
        /// The request.
        request: RequestId,
        /// One lease for each device.
        leases: Vec<LeaseRecord>,
    },
    /// The leases of a request were revoked, and the request is back in the queue at its former position.
    Requeue(RequestId),
    /// The server is to stop accepting the key of a lease.
    Revoke(String),
    /// A lease has ended, and its device is free.
    End(String),
    /// Counters at the time of a compaction: grants, arrivals, and the last grant of each user.
    Turns(u64, u64, BTreeMap<String, u64>),
}

/// User and identifier of a request.
pub type RequestId = (String, String);

/// Registered server and its device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registration {
    /// Name of the server.
    pub name: String,
    /// User who has registered it.
    pub owner: String,
    /// Kind of the device.
    pub kind: String,
    /// Labels of the device.
    pub labels: Labels,
    /// Address for clients.
    pub address: String,
    /// Identifier of the run of the server.
    pub instance: String,
}

/// Request in the queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// User and identifier.
    pub request: RequestId,
    /// Kind of the devices.
    pub kind: String,
    /// Labels that each device must have.
    pub labels: Labels,
    /// Number of devices.
    pub count: u32,
    /// Priority; a higher one is served first.
    pub priority: u8,
    /// Position in the order of arrival.
    pub arrival: u64,
}

/// Lease of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// Name of the lease and of its key.
    pub lease: String,
    /// Name of the server.
    pub device: String,
    /// Secret of the key.
    pub secret: String,
    /// Maximum duration of the session in seconds; 0 for no limit.
    pub seconds: u64,
}

/// Rights that the key of a user grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Name of the key; empty for clients without a key.
    pub user: String,
    /// Maximum number of leases at a time.
    pub leases: u32,
    /// Maximum duration of a session in seconds; 0 for no limit.
    pub seconds: u64,
    /// True if requests may have a priority above 0.
    pub priority: bool,
}

/// Reason for which a message is refused: the kind of the error and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub &'static str, pub String);

/// Answer to a call.
pub type Answer = Result<Value, Refusal>;

#[derive(Debug)]
struct Device {
    registration: Registration,
    /// Lease of the device.
    lease: Option<String>,
    /// Number of the last grant of the device.
    used: u64,
    /// Connection of the server; `None` while the server is offline.
    online: Option<Connection>,
    /// Time of the last report, or of the time at which the server went offline.
    seen: Millis,
    /// Number of the last report.
    number: u64,
    /// Leases that the server has reported.
    reported: BTreeMap<String, AtServer>,
    /// Call that waits for news, and its deadline.
    held: Option<(Call, Millis)>,
}

#[derive(Debug)]
struct Request {
    entry: Entry,
    /// Leases, once they are granted.
    leases: Vec<String>,
    /// Last grant of the user before this one.
    turn_before: u64,
    /// Connection, call and deadline; `None` while the client is disconnected.
    attached: Option<Attached>,
    /// Time at which the client was disconnected.
    detached: Millis,
    rights: Rights,
}

#[derive(Debug)]
struct Attached {
    connection: Connection,
    /// Call that waits for the leases; `None` once it is answered.
    call: Option<Call>,
    deadline: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// After a restart: the server has not reported yet.
    Unknown,
    /// The server is to accept the key before this time.
    Offered(Millis),
    /// The client is to begin its session before this time.
    Ready(Millis),
    Active,
    /// The server is to stop accepting the key.
    Ending,
}

#[derive(Debug)]
struct Lease {
    record: LeaseRecord,
    request: RequestId,
    stage: Stage,
}

/// Numbers of events since the start.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    /// Requests that got leases.
    pub granted: u64,
    /// Requests whose time limit has passed.
    pub timed_out: u64,
    /// Requests and registrations that were refused.
    pub refused: u64,
    /// Requests whose clients have disconnected.
    pub abandoned: u64,
    /// Leases that have ended.
    pub ended: u64,
    /// Leases that the tracker has revoked.
    pub revoked: u64,
}

/// State of a tracker.
#[derive(Debug)]
pub struct Tracker {
    config: Config,
    /// Creates the name and the secret of a lease.
    make_key: fn() -> (String, String),
    devices: BTreeMap<String, Device>,
    requests: BTreeMap<RequestId, Request>,
    leases: BTreeMap<String, Lease>,
    /// Number of the last grant of each user.
    turns: BTreeMap<String, u64>,
    grants: u64,
    arrivals: u64,
    counts: Counts,
    records: Vec<Record>,
    answers: Vec<(Call, Answer)>,
    /// True if devices or requests have changed since the queue was last examined.
    changed: bool,
}

fn refused<T>(kind: &'static str, message: String) -> Result<T, Refusal> {
    Err(Refusal(kind, message))
}

fn fits(kind: &str, labels: &Labels, device: &Registration) -> bool {
    device.kind == kind && labels.iter().all(|(name, value)| device.labels.get(name) == Some(value))
}

impl Device {
    /// Returns true if the device can be leased now. A server that still accepts keys of earlier leases is not free.
    fn is_free(&self) -> bool {
        self.online.is_some() && self.lease.is_none() && self.reported.is_empty()
    }
}

impl Tracker {
    /// Creates the state of a tracker from the records of its journal. `make_key` returns the name and the secret of a new key,
    /// which must be unique and random.
    ///
    /// # Errors
    /// Returns a message if a record contradicts the ones before it.
    pub fn restore(
        config: Config,
        make_key: fn() -> (String, String),
        records: impl IntoIterator<Item = Record>,
        now: Millis,
    ) -> Result<Tracker, String> {
        let mut tracker = Tracker {
            config,
            make_key,
            devices: BTreeMap::new(),
            requests: BTreeMap::new(),
            leases: BTreeMap::new(),
            turns: BTreeMap::new(),
            grants: 0,
            arrivals: 0,
            counts: Counts::default(),
            records: Vec::new(),
            answers: Vec::new(),
            changed: false,
        };
        for record in records {
            tracker.apply(&record)?;
        }
        tracker.counts = Counts::default();
        tracker.devices.values_mut().for_each(|device| device.seen = now);
        tracker.requests.values_mut().for_each(|request| request.detached = now);
        Ok(tracker)
    }

    /// Returns records from which [`Tracker::restore`] creates the same state.
    pub fn snapshot(&self) -> Vec<Record> {
        let mut all: Vec<Record> =
            self.devices.values().map(|device| Record::Device(device.registration.clone())).collect();
        for request in self.requests.values() {
            all.push(Record::Request(request.entry.clone()));
            if !request.leases.is_empty() {
                let leases = request.leases.iter().map(|name| self.leases[name].record.clone()).collect();
                all.push(Record::Grant { request: request.entry.request.clone(), leases });
            }
        }
        let orphans = self.leases.values().filter(|lease| {
            let owner = self.requests.get(&lease.request);
            owner.is_none_or(|request| !request.leases.contains(&lease.record.lease))
        });
        for lease in orphans {
            // A lease whose request has been requeued, or has lost it otherwise, is only waiting for its end.
            let leases = vec![lease.record.clone()];
            all.push(Record::Grant { request: (lease.request.0.clone(), String::new()), leases });
        }
        let ending = self.leases.values().filter(|lease| lease.stage == Stage::Ending);
        all.extend(ending.map(|lease| Record::Revoke(lease.record.lease.clone())));
        all.push(Record::Turns(self.grants, self.arrivals, self.turns.clone()));
        all
    }

    /// Takes the records that have to be in the journal before the answers are sent.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// Takes the answers to calls.
    pub fn take_answers(&mut self) -> Vec<(Call, Answer)> {
        std::mem::take(&mut self.answers)
    }

    /// Returns the numbers of events since the start.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn commit(&mut self, record: Record) {
        let done = self.apply(&record);
        debug_assert!(done.is_ok(), "{done:?} for {record:?}");
        self.changed = true;
        self.records.push(record);
    }

    /// Changes the state that survives a restart.
    fn apply(&mut self, record: &Record) -> Result<(), String> {
        let unknown = |what: &str, name: &str| format!("the {what} `{name}` is unknown");
        match record {
            Record::Device(registration) => {
                let name = &registration.name;
                if let Some(device) = self.devices.get_mut(name) {
                    let is_new = device.registration.instance != registration.instance;
                    device.registration = registration.clone();
                    if is_new && let Some(lease) = device.lease.take() {
                        self.end_lease(&lease);
                    }
                } else {
                    let device = Device {
                        registration: registration.clone(),
                        lease: None,
                        used: 0,
                        online: None,
                        seen: 0,
                        number: 0,
                        reported: BTreeMap::new(),
                        held: None,
                    };
                    self.devices.insert(name.clone(), device);
                }
            }
            Record::Forget(name) => {
                let device = self.devices.remove(name).ok_or_else(|| unknown("server", name))?;
                if let Some(lease) = device.lease {
                    self.end_lease(&lease);
                }
            }
            Record::Request(entry) => {
                self.arrivals = self.arrivals.max(entry.arrival);
                let rights =
                    Rights { user: entry.request.0.clone(), leases: u32::MAX, seconds: 0, priority: true };
                let request = Request {
                    entry: entry.clone(),
                    leases: Vec::new(),
                    turn_before: 0,
                    attached: None,
                    detached: 0,
                    rights,
                };
                self.requests.insert(entry.request.clone(), request);
            }
            Record::Drop(request) => {
                self.requests.remove(request).ok_or_else(|| unknown("request", &request.1))?;
            }
            Record::Grant { request, leases } => {
                self.grants += 1;
                if let Some(known) = self.requests.get_mut(request) {
                    known.turn_before = self.turns.insert(request.0.clone(), self.grants).unwrap_or(0);
                    known.leases = leases.iter().map(|lease| lease.lease.clone()).collect();
                }
                for lease in leases {
                    let device =
                        self.devices.get_mut(&lease.device).ok_or_else(|| unknown("server", &lease.device))?;
                    if let Some(other) = &device.lease {
                        return Err(format!("the server `{}` has the lease `{other}` already", lease.device));
                    }
                    device.lease = Some(lease.lease.clone());
                    device.used = self.grants;
                    let made = Lease { record: lease.clone(), request: request.clone(), stage: Stage::Unknown };
                    self.leases.insert(lease.lease.clone(), made);
                }
            }
            Record::Requeue(request) => {
                let known = self.requests.get_mut(request).ok_or_else(|| unknown("request", &request.1))?;
                known.leases.clear();
                self.turns.insert(request.0.clone(), known.turn_before);
            }
            Record::Revoke(lease) => {
                self.leases.get_mut(lease).ok_or_else(|| unknown("lease", lease))?.stage = Stage::Ending;
            }
            Record::End(name) => {
                let lease = self.leases.get(name).ok_or_else(|| unknown("lease", name))?;
                if let Some(device) = self.devices.get_mut(&lease.record.device) {
                    device.lease = None;
                }
                self.end_lease(name);
            }
            Record::Turns(grants, arrivals, turns) => {
                (self.grants, self.arrivals, self.turns) = (*grants, *arrivals, turns.clone());
            }
        }
        Ok(())
    }

    /// Removes a lease, and its request if that has no other lease.
    fn end_lease(&mut self, name: &str) {
        let Some(lease) = self.leases.remove(name) else { return };
        self.counts.ended += 1;
        let Some(request) = self.requests.get_mut(&lease.request) else { return };
        let Some(at) = request.leases.iter().position(|other| other == name) else { return };
        request.leases.remove(at);
        let call = request.attached.as_mut().and_then(|attached| attached.call.take());
        if request.leases.is_empty() {
            self.requests.remove(&lease.request);
        }
        self.fail_delivery(call);
    }

    /// Tells a client that a device was lost before it got its leases.
    fn fail_delivery(&mut self, call: Option<Call>) {
        if let Some(call) = call {
            let why = "the server of a lease has ended; request the devices again".to_owned();
            self.answers.push((call, Err(Refusal("ConnectionError", why))));
        }
    }

    fn answer(&mut self, call: Call, answer: Answer) {
        self.counts.refused += u64::from(answer.is_err());
        self.answers.push((call, answer));
    }

    // Servers.

    /// Handles the report of a server. It is answered at once if the server has to change something, and otherwise when there are
    /// news or its time is over.
    pub fn sync(&mut self, now: Millis, rights: &Rights, connection: Connection, call: Call, sync: Sync) {
        match self.register(now, rights, connection, &sync) {
            Ok(true) => self.hear(now, call, sync),
            // A report that was overtaken by a newer one.
            Ok(false) => self.send_offers(&sync.name, call),
            Err(refusal) => self.answer(call, Err(refusal)),
        }
        self.settle(now);
    }

    /// Registers a server. Returns false if it has sent a newer report before.
    fn register(
        &mut self,
        now: Millis,
        rights: &Rights,
        connection: Connection,
        sync: &Sync,
    ) -> Result<bool, Refusal> {
        sync.check().or_else(|why| refused("ValueError", why))?;
        let registration = Registration {
            name: sync.name.clone(),
            owner: rights.user.clone(),
            kind: sync.kind.clone(),
            labels: sync.labels.clone(),
            address: sync.address.clone(),
            instance: sync.instance.clone(),
        };
        match self.devices.get(&sync.name) {
            None if self.devices.len() >= self.config.devices => {
                return refused(
                    "RuntimeError",
                    format!("the tracker has {} servers already", self.config.devices),
                );
            }
            None => self.commit(Record::Device(registration)),
            Some(device) => {
                let known = &device.registration;
                if known.owner != rights.user {
                    let why = format!("a server with the name `{}` is registered with another key", sync.name);
                    return refused("PermissionError", why);
                }
                let is_same = known.instance == sync.instance;
                if !is_same && device.online.is_some() {
                    let why = format!(
                        "a server with the name `{}` is registered already, at {}: choose another name (`--name`)",
                        sync.name, known.address
                    );
                    return refused("ValueError", why);
                }
                if is_same && sync.number <= device.number && device.online.is_some() {
                    return Ok(false);
                }
                if *known != registration {
                    self.commit(Record::Device(registration));
                    if !is_same && let Some(device) = self.devices.get_mut(&sync.name) {
                        device.reported.clear();
                    }
                }
            }
        }
        if let Some(device) = self.devices.get_mut(&sync.name) {
            self.changed |= device.online.is_none();
            (device.online, device.seen, device.number) = (Some(connection), now, sync.number);
        }
        Ok(true)
    }

    /// Compares the report of a registered server with its lease.
    fn hear(&mut self, now: Millis, call: Call, sync: Sync) {
        let Some(device) = self.devices.get_mut(&sync.name) else { return };
        let earlier = device.held.take();
        self.changed |= device.reported != sync.leases;
        device.reported = sync.leases;
        let reported = device.lease.as_ref().map(|lease| (lease.clone(), device.reported.get(lease).copied()));
        if let Some((name, at_server)) = reported {
            let has_ended = sync.ended.contains(&name);
            let stage = self.leases[&name].stage;
            let next = match (stage, at_server) {
                (_, None) if has_ended => None,
                (Stage::Ending, None) => None,
                // The server has lost it.
                (Stage::Ready(_) | Stage::Active, None) => None,
                (Stage::Unknown, None) => Some(Stage::Offered(now + self.config.offer)),
                (Stage::Offered(until), None) => Some(Stage::Offered(until)),
                (Stage::Ending, Some(_)) => Some(Stage::Ending),
                (_, Some(AtServer::Active)) => Some(Stage::Active),
                (Stage::Ready(until), Some(AtServer::Ready)) => Some(Stage::Ready(until)),
                (_, Some(AtServer::Ready)) => Some(Stage::Ready(now + self.config.connect)),
            };
            match (next, self.leases.get_mut(&name)) {
                (Some(next), Some(lease)) => lease.stage = next,
                _ => self.commit(Record::End(name.clone())),
            }
            self.deliver(&name);
        }
        if let Some((earlier, _)) = earlier {
            self.send_offers(&sync.name, earlier);
        }
        let offers: BTreeSet<String> = self.offers(&sync.name).into_iter().map(|offer| offer.lease).collect();
        let Some(device) = self.devices.get_mut(&sync.name) else { return };
        let is_same = device.reported.keys().eq(&offers) && sync.ended.is_empty();
        if is_same && sync.wait > 0.0 {
            device.held = Some((call, now + (sync.wait * 1000.0) as Millis));
        } else {
            self.send_offers(&sync.name, call);
        }
    }

    fn offers(&self, device: &str) -> Vec<Offer> {
        let lease = self.devices.get(device).and_then(|device| self.leases.get(device.lease.as_ref()?));
        let lease = lease.filter(|lease| lease.stage != Stage::Ending);
        let offer = |lease: &Lease| Offer {
            lease: lease.record.lease.clone(),
            user: lease.request.0.clone(),
            secret: lease.record.secret.clone(),
            seconds: lease.record.seconds,
        };
        lease.map(offer).into_iter().collect()
    }

    fn send_offers(&mut self, device: &str, call: Call) {
        let synced = Synced { leases: self.offers(device) };
        self.answers.push((call, Ok(json!(synced))));
    }

    /// Answers the waiting call of a server, because its lease has changed.
    fn notify(&mut self, device: &str) {
        let held = self.devices.get_mut(device).and_then(|device| device.held.take());
        if let Some((call, _)) = held {
            self.send_offers(device, call);
        }
    }

    // Clients.

    /// Handles a request. It is answered when its leases are ready, its time is over, or it cannot be met.
    pub fn request(&mut self, now: Millis, rights: &Rights, connection: Connection, call: Call, ask: Ask) {
        if let Err(refusal) = self.enqueue(now, rights, connection, call, ask) {
            self.answer(call, Err(refusal));
        }
        self.settle(now);
    }

    fn enqueue(
        &mut self,
        now: Millis,
        rights: &Rights,
        connection: Connection,
        call: Call,
        ask: Ask,
    ) -> Result<(), Refusal> {
        ask.check().or_else(|why| refused("ValueError", why))?;
        let id = (rights.user.clone(), ask.id.clone());
        let deadline = now + (ask.timeout * 1000.0) as Millis;
        let attached = Some(Attached { connection, call: Some(call), deadline });
        if let Some(known) = self.requests.get_mut(&id) {
            // The client has repeated it, because it has lost the connection on which it has sent it before.
            let earlier = std::mem::replace(&mut known.attached, attached);
            known.rights = rights.clone();
            let lease = known.leases.first().cloned();
            self.changed = true;
            if let Some(earlier) = earlier.and_then(|earlier| earlier.call) {
                let why = "the request was repeated on another connection".to_owned();
                self.answers.push((earlier, Err(Refusal("ConnectionError", why))));
            }
            if let Some(lease) = lease {
                self.deliver(&lease);
            }
            return Ok(());
        }
        if ask.priority > 0 && !rights.priority {
            let why = "this key may not set a priority: grant it the function `tracker.priority`".to_owned();
            return refused("PermissionError", why);
        }
        if ask.count > rights.leases {
            let why = format!(
                "`count`: this key may hold {} leases (`sessions`), got a request for {}",
                rights.leases, ask.count
            );
            return refused("ValueError", why);
        }
        self.check_kind(&ask)?;
        let waiting = self.requests.values().filter(|request| request.leases.is_empty());
        let of_user = waiting.clone().filter(|request| request.entry.request.0 == rights.user).count();
        if waiting.count() >= self.config.requests || of_user >= self.config.requests_of_user {
            return refused("RuntimeError", "too many requests wait; try again later".into());
        }
        let entry = Entry {
            request: id.clone(),
            kind: ask.kind,
            labels: ask.labels,
            count: ask.count,
            priority: ask.priority,
            arrival: self.arrivals + 1,
        };
        self.commit(Record::Request(entry));
        if let Some(request) = self.requests.get_mut(&id) {
            request.attached = attached;
            request.rights = rights.clone();
        }
        Ok(())
    }

    /// Checks that there are enough servers of a kind. Those that are offline count, because they may return.
    fn check_kind(&self, ask: &Ask) -> Result<(), Refusal> {
        let all = || self.devices.values().map(|device| &device.registration);
        let count = all().filter(|device| fits(&ask.kind, &ask.labels, device)).count();
        if count >= ask.count as usize {
            return Ok(());
        }
        if all().all(|device| device.kind != ask.kind) {
            let kinds: BTreeSet<&str> = all().map(|device| device.kind.as_str()).collect();
            let kinds = kinds.into_iter().take(20).collect::<Vec<_>>().join(", ");
            let kinds = if kinds.is_empty() {
                "no server is registered".into()
            } else {
                format!("the kinds are {kinds}")
            };
            return refused("ValueError", format!("`kind`: no server has the kind `{}`; {kinds}", ask.kind));
        }
        let labels: Vec<String> = ask.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!(" with {}", labels.join(", ")) };
        let why = format!(
            "expected a request for at most {count} devices of the kind `{}`{labels}, got a request for {}",
            ask.kind, ask.count
        );
        refused("ValueError", why)
    }

    /// Returns leases before their sessions have begun, or ends their sessions.
    pub fn release(&mut self, now: Millis, rights: &Rights, leases: &[String]) {
        for name in leases {
            if self.leases.get(name).is_some_and(|lease| lease.request.0 == rights.user) {
                self.revoke(name);
            }
        }
        self.settle(now);
    }

    /// Handles the end of a connection.
    pub fn disconnect(&mut self, now: Millis, connection: Connection) {
        for request in self.requests.values_mut() {
            if request.attached.as_ref().is_some_and(|attached| attached.connection == connection) {
                request.attached = None;
                request.detached = now;
                self.changed = true;
            }
        }
        let gone: Vec<String> = self
            .devices
            .values()
            .filter(|device| device.online == Some(connection))
            .map(Device::name)
            .collect();
        for name in gone {
            self.lose(now, &name);
        }
        self.settle(now);
    }

    /// Records that a server is offline. Its lease remains: its session may well continue.
    fn lose(&mut self, now: Millis, name: &str) {
        let Some(device) = self.devices.get_mut(name) else { return };
        (device.online, device.held, device.seen) = (None, None, now);
        self.changed = true;
        let lease = device.lease.as_ref().and_then(|lease| self.leases.get_mut(lease));
        if let Some(Lease { stage: Stage::Offered(until), .. }) = lease {
            // The request need not wait long for a server that has probably ended.
            *until = (*until).min(now + self.config.offer / 5);
        }
    }

    /// Sends a client its leases if all of them are ready.
    fn deliver(&mut self, lease: &str) {
        let Some(id) = self.leases.get(lease).map(|lease| lease.request.clone()) else { return };
        let Some(request) = self.requests.get(&id) else { return };
        let leased = |name: &String| {
            let lease = self.leases.get(name)?;
            let device = self.devices.get(&lease.record.device)?;
            matches!(lease.stage, Stage::Ready(_) | Stage::Active).then(|| Leased {
                lease: name.clone(),
                device: lease.record.device.clone(),
                address: device.registration.address.clone(),
                key: format!("{name}:{}", lease.record.secret),
            })
        };
        let Some(leases) = request.leases.iter().map(leased).collect::<Option<Vec<_>>>() else { return };
        let is_complete = leases.len() == request.entry.count as usize;
        let call = self.requests.get_mut(&id).and_then(|request| request.attached.as_mut()?.call.take());
        if !is_complete {
            self.fail_delivery(call);
        } else if let Some(call) = call {
            self.counts.granted += 1;
            self.answers.push((call, Ok(json!(Granted { leases }))));
        }
    }

    fn revoke(&mut self, name: &str) {
        let Some(lease) = self.leases.get(name).filter(|lease| lease.stage != Stage::Ending) else { return };
        let device = lease.record.device.clone();
        self.counts.revoked += 1;
        self.commit(Record::Revoke(name.to_owned()));
        self.notify(&device);
    }

    /// Puts a request back into the queue because a server did not accept its key.
    fn requeue(&mut self, id: &RequestId) {
        let Some(request) = self.requests.get(id) else { return };
        let leases = request.leases.clone();
        self.commit(Record::Requeue(id.clone()));
        leases.iter().for_each(|lease| self.revoke(lease));
    }

    // Time and queue.

    /// Applies all time limits.
    pub fn tick(&mut self, now: Millis) {
        self.settle(now);
    }

    /// Returns the time at which [`Tracker::tick`] has to be called at the latest.
    pub fn deadline(&self) -> Option<Millis> {
        let Config { lost, forget, detached, .. } = self.config;
        let devices = self.devices.values().flat_map(|device| {
            let limit = device.seen.saturating_add(if device.online.is_some() { lost } else { forget });
            [Some(limit), device.held.map(|(_, until)| until)]
        });
        let requests = self.requests.values().map(|request| match &request.attached {
            // Leases that are on their way have deadlines of their own.
            Some(_) if request.leases.iter().any(|lease| self.is_offered(lease)) => None,
            Some(attached) => attached.call.map(|_| attached.deadline),
            None => request.leases.is_empty().then(|| request.detached.saturating_add(detached)),
        });
        let leases = self.leases.values().map(|lease| match lease.stage {
            Stage::Offered(until) | Stage::Ready(until) => Some(until),
            _ => None,
        });
        devices.chain(requests).chain(leases).flatten().min()
    }

    fn is_offered(&self, lease: &str) -> bool {
        self.leases.get(lease).is_some_and(|lease| matches!(lease.stage, Stage::Offered(_)))
    }

    /// Applies time limits and grants requests until nothing changes.
    fn settle(&mut self, now: Millis) {
        self.keep_time(now);
        while std::mem::take(&mut self.changed) {
            while self.grant_next(now) {}
        }
        self.time_out(now);
    }

    fn keep_time(&mut self, now: Millis) {
        let has_passed = |since: Millis, limit: Millis| now.saturating_sub(since) >= limit;
        let names: Vec<String> = self.devices.keys().cloned().collect();
        for name in names {
            let device = &self.devices[&name];
            if device.online.is_some() && has_passed(device.seen, self.config.lost) {
                // It may wait for an answer for longer than that.
                self.notify(&name);
                self.lose(now, &name);
            } else if device.online.is_none() && has_passed(device.seen, self.config.forget) {
                self.commit(Record::Forget(name));
            } else if device.held.is_some_and(|(_, until)| until <= now) {
                self.notify(&name);
            }
        }
        let names: Vec<String> = self.leases.keys().cloned().collect();
        for name in names {
            let Some(lease) = self.leases.get(&name) else { continue };
            match lease.stage {
                Stage::Offered(until) if until <= now => {
                    let id = lease.request.clone();
                    let owns = self.requests.get(&id).is_some_and(|request| request.leases.contains(&name));
                    if owns { self.requeue(&id) } else { self.revoke(&name) }
                }
                // The client has not connected.
                Stage::Ready(until) if until <= now => self.revoke(&name),
                _ => {}
            }
        }
        let is_abandoned = |request: &&Request| {
            request.leases.is_empty()
                && request.attached.is_none()
                && has_passed(request.detached, self.config.detached)
        };
        let ids: Vec<RequestId> =
            self.requests.values().filter(is_abandoned).map(|request| request.entry.request.clone()).collect();
        for id in ids {
            self.counts.abandoned += 1;
            self.commit(Record::Drop(id));
        }
    }

    /// Answers the requests whose time limit has passed. Those that could be granted have been granted before.
    fn time_out(&mut self, now: Millis) {
        let is_late = |request: &&Request| {
            request
                .attached
                .as_ref()
                .is_some_and(|attached| attached.call.is_some() && attached.deadline <= now)
        };
        let late: Vec<RequestId> =
            self.requests.values().filter(is_late).map(|request| request.entry.request.clone()).collect();
        for id in late {
            let request = &self.requests[&id];
            let (entry, leases) = (&request.entry, request.leases.clone());
            if leases.iter().any(|lease| self.is_offered(lease)) {
                // The leases are on their way; `offer` limits that.
                continue;
            }
            let waiting = self.requests.values().filter(|other| other.leases.is_empty()).count();
            let why = format!(
                "no device of the kind `{}` became free in time; {waiting} requests wait: wait longer (`timeout=`)",
                entry.kind
            );
            let call = self.requests.get_mut(&id).and_then(|request| request.attached.as_mut()?.call.take());
            if let Some(call) = call {
                self.counts.timed_out += 1;
                self.answers.push((call, Err(Refusal("TimeoutError", why))));
            }
            if leases.is_empty() {
                self.commit(Record::Drop(id));
            } else {
                leases.iter().for_each(|lease| self.revoke(lease));
            }
        }
    }

    /// Checks the invariants, for tests. Returns the first that is broken.
    ///
    /// # Errors
    /// Returns a message that names the invariant.
    pub fn check(&self) -> Result<(), String> {
        for (name, lease) in &self.leases {
            let device = self.devices.get(&lease.record.device);
            if device.and_then(|device| device.lease.as_ref()) != Some(name) {
                return Err(format!("the lease {name} is not the only lease of its device"));
            }
        }
        for (name, device) in &self.devices {
            if device.lease.as_ref().is_some_and(|lease| !self.leases.contains_key(lease)) {
                return Err(format!("the device {name} has a lease that does not exist"));
            }
        }
        for request in self.requests.values() {
            if request.leases.iter().any(|lease| !self.leases.contains_key(lease)) {
                return Err(format!("the request {:?} has a lease that does not exist", request.entry.request));
            }
        }
        Ok(())
    }
}

impl Device {
    fn name(&self) -> String {
        self.registration.name.clone()
    }
}
