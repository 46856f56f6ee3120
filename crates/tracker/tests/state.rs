//! Property tests of the state machine with a simulated clock: random servers and clients, which are killed, cut off and started
//! again, while the tracker is started again from its journal, and the clock jumps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use anyfn_core as _;
use anyfn_tracker::message::{Ask, AtServer, Granted, Labels, Sync, Synced};
use anyfn_tracker::state::{Answer, Call, Config, Connection, Record, Refusal, Rights, Tracker};
use proptest::prelude::*;

const KINDS: [&str; 2] = ["gpu", "board"];

fn make_key() -> (String, String) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    (format!("lease-{number}"), format!("secret-{number}"))
}

fn rights(user: &str) -> Rights {
    Rights { user: user.into(), leases: 3, seconds: 0, priority: true }
}

fn config() -> Config {
    Config { requests_of_user: 6, ..Config::default() }
}

/// Server that follows the protocol.
#[derive(Clone, Debug)]
struct Server {
    run: u64,
    number: u64,
    connection: Connection,
    is_alive: bool,
    /// Leases whose keys it accepts, and whether they are revoked while their session has not ended yet.
    leases: BTreeMap<String, (AtServer, bool)>,
    ended: BTreeSet<String>,
    applied: u64,
}

/// Client that waits for an answer.
#[derive(Clone, Debug)]
struct Waiting {
    user: String,
    ask: Ask,
    connection: Connection,
    deadline: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Sync(usize, bool),
    KillServer(usize),
    CutServer(usize),
    Request { user: u8, kind: usize, count: u32, priority: u8, seconds: u64 },
    KillClient(usize),
    Begin(usize),
    End(usize),
    Advance(u64),
    JumpBack(u64),
    Restart,
    Compact,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..4_usize, any::<bool>()).prop_map(|(server, waits)| Step::Sync(server, waits)),
        1 => (0..4_usize).prop_map(Step::KillServer),
        1 => (0..4_usize).prop_map(Step::CutServer),
        6 => (0..3_u8, 0..2_usize, 1..3_u32, 0..3_u8, 0..40_u64).prop_map(|(user, kind, count, priority, seconds)| {
            Step::Request { user, kind, count, priority, seconds }
        }),
        1 => (0..8_usize).prop_map(Step::KillClient),
        5 => (0..4_usize).prop_map(Step::Begin),
        5 => (0..4_usize).prop_map(Step::End),
        4 => (1..6_000_u64).prop_map(Step::Advance),
        1 => (6_000..700_000_u64).prop_map(Step::Advance),
        1 => (1..50_000_u64).prop_map(Step::JumpBack),
        1 => Just(Step::Restart),
        1 => Just(Step::Compact),
    ]
}

struct World {
    tracker: Tracker,
    journal: Vec<Record>,
    now: u64,
    servers: Vec<Server>,
    clients: BTreeMap<Call, Waiting>,
    /// Calls of servers: the server, its run, and the number of its report.
    syncs: BTreeMap<Call, (usize, u64, u64)>,
    calls: Call,
    connections: Connection,
}

impl World {
    fn new() -> World {
        let server = Server {
            run: 0,
            number: 0,
            connection: 0,
            is_alive: false,
            leases: BTreeMap::new(),
            ended: BTreeSet::new(),
            applied: 0,
        };
        World {
            tracker: Tracker::restore(config(), make_key, [], 1_000_000).unwrap(),
            journal: Vec::new(),
            now: 1_000_000,
            servers: vec![server; 4],
            clients: BTreeMap::new(),
            syncs: BTreeMap::new(),
            calls: 0,
            connections: 0,
        }
    }

    fn call(&mut self) -> Call {
        self.calls += 1;
        self.calls
    }

    fn connection(&mut self) -> Connection {
        self.connections += 1;
        self.connections
    }

    /// Writes the records, then delivers the answers.
    fn settle(&mut self) {
        loop {
            self.journal.extend(self.tracker.take_records());
            let answers = self.tracker.take_answers();
            if answers.is_empty() {
                break;
            }
            for (call, answer) in answers {
                self.deliver(call, answer);
            }
        }
        self.tracker.check().unwrap();
        for (at, server) in self.servers.iter().enumerate() {
            assert!(server.leases.len() <= 1, "server {at} has several leases: {:?}", server.leases);
        }
    }

    fn deliver(&mut self, call: Call, answer: Answer) {
        if let Some((at, run, number)) = self.syncs.remove(&call) {
            let server = &mut self.servers[at];
            let Ok(synced) = answer else { return };
            if !server.is_alive || server.run != run || number <= server.applied {
                return;
            }
            server.applied = number;
            let synced: Synced = serde_json::from_value(synced).unwrap();
            let wanted: BTreeSet<String> = synced.leases.into_iter().map(|offer| offer.lease).collect();
            server.ended.retain(|lease| wanted.contains(lease));
            for (lease, (_, is_revoked)) in &mut server.leases {
                *is_revoked |= !wanted.contains(lease);
            }
            // Without a session, a key that is removed is gone at once.
            server.leases.retain(|_, (state, is_revoked)| !*is_revoked || *state == AtServer::Active);
            for lease in wanted {
                if !server.ended.contains(&lease) {
                    server.leases.entry(lease).or_insert((AtServer::Ready, false));
                }
            }
        } else if let Some(client) = self.clients.remove(&call) {
            match answer {
                Ok(granted) => {
                    let granted: Granted = serde_json::from_value(granted).unwrap();
                    assert_eq!(granted.leases.len(), client.ask.count as usize);
                    let devices: BTreeSet<&String> = granted.leases.iter().map(|lease| &lease.device).collect();
                    assert_eq!(devices.len(), granted.leases.len(), "a device was leased twice");
                }
                Err(Refusal(kind, why)) => {
                    let is_early = kind == "TimeoutError" && self.now + 2 < client.deadline;
                    assert!(!is_early, "{why}: at {} before {}", self.now, client.deadline);
                }
            }
        }
    }

    fn sync(&mut self, at: usize, waits: bool) {
        let (call, connection) = (self.call(), self.connection());
        let server = &mut self.servers[at];
        if !server.is_alive {
            *server = Server {
                run: server.run + 1,
                number: 0,
                connection: 0,
                is_alive: true,
                leases: BTreeMap::new(),
                ended: BTreeSet::new(),
                applied: 0,
            };
        }
        if server.connection == 0 {
            server.connection = connection;
        }
        server.number += 1;
        let sync = Sync {
            name: format!("server-{at}"),
            kind: KINDS[at % 2].into(),
            labels: Labels::new(),
            address: "127.0.0.1:1".into(),
            instance: format!("run-{}", server.run),
            number: server.number,
            leases: server.leases.iter().map(|(name, (state, _))| (name.clone(), *state)).collect(),
            ended: server.ended.iter().cloned().collect(),
            wait: if waits { 4.0 } else { 0.0 },
        };
        let connection = server.connection;
        self.syncs.insert(call, (at, server.run, server.number));
        self.tracker.sync(self.now, &rights("owner"), connection, call, sync);
        self.settle();
    }

    fn ask(&mut self, user: String, ask: Ask, deadline: u64) {
        let (call, connection) = (self.call(), self.connection());
        self.clients.insert(call, Waiting { user: user.clone(), ask: ask.clone(), connection, deadline });
        self.tracker.request(self.now, &rights(&user), connection, call, ask);
        self.settle();
    }

    fn end_session(&mut self, at: usize) {
        let server = &mut self.servers[at];
        let active: Vec<String> = server
            .leases
            .iter()
            .filter(|(_, (state, _))| *state == AtServer::Active)
            .map(|(name, _)| name.clone())
            .collect();
        for lease in active {
            server.leases.remove(&lease);
            server.ended.insert(lease);
        }
    }

    fn tick(&mut self) {
        self.tracker.tick(self.now);
        self.settle();
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Sync(at, waits) => self.sync(at, waits),
            Step::KillServer(at) => {
                let connection = std::mem::take(&mut self.servers[at].connection);
                self.servers[at].is_alive = false;
                self.servers[at].leases.clear();
                self.tracker.disconnect(self.now, connection);
                self.settle();
            }
            Step::CutServer(at) => {
                let connection = std::mem::take(&mut self.servers[at].connection);
                self.tracker.disconnect(self.now, connection);
                self.settle();
            }
            Step::Request { user, kind, count, priority, seconds } => {
                let id = format!("request-{}", self.calls);
                let (kind, timeout) = (KINDS[kind].to_owned(), seconds as f64);
                let ask = Ask { id, kind, labels: Labels::new(), count, priority, timeout };
                self.ask(format!("user-{user}"), ask, self.now + seconds * 1000);
            }
            Step::KillClient(at) => {
                let Some((call, client)) =
                    self.clients.iter().nth(at).map(|(call, client)| (*call, client.clone()))
                else {
                    return;
                };
                self.clients.remove(&call);
                self.tracker.disconnect(self.now, client.connection);
                self.settle();
            }
            Step::Begin(at) => {
                for (state, is_revoked) in self.servers[at].leases.values_mut() {
                    if !*is_revoked {
                        *state = AtServer::Active;
                    }
                }
            }
            Step::End(at) => self.end_session(at),
            Step::Advance(time) => {
                self.now += time;
                self.tick();
            }
            Step::JumpBack(time) => {
                self.now -= time.min(self.now);
                self.tick();
                self.now += time;
            }
            Step::Restart => {
                let before = self.tracker.snapshot();
                self.tracker =
                    Tracker::restore(config(), make_key, self.journal.iter().cloned(), self.now).unwrap();
                assert_eq!(names(&self.tracker.snapshot()), names(&before), "something was lost");
                self.syncs.clear();
                self.servers.iter_mut().for_each(|server| server.connection = 0);
                for (_, client) in std::mem::take(&mut self.clients) {
                    let left = client.deadline.saturating_sub(self.now) as f64 / 1000.0;
                    self.ask(client.user, Ask { timeout: left, ..client.ask }, client.deadline);
                }
            }
            Step::Compact => self.journal = self.tracker.snapshot(),
        }
    }

    /// Lets all sessions end, and checks that all requests are answered and all devices are free.
    fn finish(&mut self) {
        for _ in 0..60 {
            for at in 0..self.servers.len() {
                self.end_session(at);
                self.sync(at, false);
            }
            self.now += 2_000;
            self.tick();
        }
        assert!(self.clients.is_empty(), "{:?} were never answered", self.clients);
        let summary = self.tracker.summary(self.now);
        let states: Vec<&str> = summary["devices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|device| device["state"].as_str().unwrap())
            .collect();
        assert_eq!(states, ["free"; 4], "a device was lost: {summary}");
        assert_eq!(summary["queue"].as_array().unwrap().len(), 0);
    }
}

/// Returns the names of the devices, requests and leases in a snapshot, and which leases are revoked.
fn names(snapshot: &[Record]) -> BTreeSet<String> {
    let text = |record: &Record| match record {
        Record::Device(device) => vec![format!("device {device:?}")],
        Record::Request(entry) => vec![format!("request {entry:?}")],
        Record::Grant { leases, .. } => leases.iter().map(|lease| format!("lease {lease:?}")).collect(),
        Record::Revoke(lease) => vec![format!("revoke {lease}")],
        _ => Vec::new(),
    };
    snapshot.iter().flat_map(text).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// A device has at most one lease, nothing is lost by a restart, every request is answered, and every device returns.
    #[test]
    fn no_device_is_lost(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for at in 0..4 {
            world.sync(at, false);
        }
        for step in steps {
            world.run(step);
        }
        world.finish();
    }

    /// While a user waits, every other user gets at most one device of the kind before.
    #[test]
    fn users_take_turns(arrivals in proptest::collection::vec((0..5_usize, 1..4_usize), 1..40)) {
        let mut world = World::new();
        world.sync(0, false);
        let users: Vec<String> = (0..5).map(|user| format!("user-{user}")).collect();
        let mut overtaken: BTreeMap<(String, String), u32> = BTreeMap::new();
        let waits = |world: &World, user: &String| world.clients.values().any(|client| &client.user == user);
        for (user, grants) in arrivals {
            if !waits(&world, &users[user]) {
                overtaken.retain(|(waiting, _), _| waiting != &users[user]);
            }
            let id = format!("request-{}", world.calls);
            let ask = Ask { id, kind: "gpu".into(), labels: Labels::new(), count: 1, priority: 0, timeout: 1e5 };
            world.ask(users[user].clone(), ask, u64::MAX);
            for _ in 0..grants {
                let before = world.clients.clone();
                world.sync(0, false);
                world.sync(0, false);
                world.run(Step::Begin(0));
                let granted = before.into_iter().find(|(call, _)| !world.clients.contains_key(call));
                if let Some((_, granted)) = granted {
                    overtaken.retain(|(waiting, _), _| waiting != &granted.user);
                    for other in users.iter().filter(|other| **other != granted.user && waits(&world, other)) {
                        let count = overtaken.entry((other.clone(), granted.user.clone())).or_default();
                        *count += 1;
                        prop_assert!(*count <= 1, "{} was served twice while {other} waited", granted.user);
                    }
                }
                world.sync(0, false);
                world.run(Step::End(0));
                world.sync(0, false);
            }
        }
    }
}

/// Returns the refusal of a request.
fn refusal(world: &mut World, user: &str, ask: Ask) -> Option<Refusal> {
    let (call, connection) = (world.call(), world.connection());
    world.tracker.request(world.now, &rights(user), connection, call, ask);
    let answers = world.tracker.take_answers();
    answers.into_iter().find_map(|(other, answer)| answer.err().filter(|_| other == call))
}

fn ask(kind: &str) -> Ask {
    let id = format!("id-{}", make_key().0);
    Ask { id, kind: kind.into(), labels: Labels::new(), count: 1, priority: 0, timeout: 1.0 }
}

#[test]
fn impossible_requests_are_refused_at_once() {
    let mut world = World::new();
    assert!(refusal(&mut world, "u", ask("gpu")).unwrap().1.contains("no server is registered"));
    (0..4).for_each(|at| world.sync(at, false));
    let os = Labels::from([("os".to_owned(), "linux".to_owned())]);
    for (ask, expected) in [
        (ask("phone"), "no server has the kind `phone`; the kinds are board, gpu"),
        (Ask { count: 3, ..ask("gpu") }, "at most 2 devices of the kind `gpu`, got a request for 3"),
        (Ask { labels: os, ..ask("gpu") }, "at most 0 devices of the kind `gpu` with os=linux"),
        (Ask { count: 0, ..ask("gpu") }, "`count`: expected a number from 1 to 64, got 0"),
        (Ask { priority: 10, ..ask("gpu") }, "`priority`: expected a number from 0 to 9, got 10"),
        (Ask { timeout: f64::NAN, ..ask("gpu") }, "`timeout`"),
        (Ask { timeout: 1e300, ..ask("gpu") }, "`timeout`"),
        (ask("\u{1b}[2J"), "`kind`: expected 1 to 64 characters"),
    ] {
        let Refusal(kind, why) = refusal(&mut world, "u", ask).unwrap();
        assert!(kind == "ValueError" && why.contains(expected), "{why}");
    }
}

#[test]
fn a_name_belongs_to_one_running_server_and_one_key() {
    let mut world = World::new();
    world.sync(0, false);
    let sync = |name: &str, instance: &str| Sync {
        name: name.into(),
        kind: "gpu".into(),
        labels: Labels::new(),
        address: "h:1".into(),
        instance: instance.into(),
        number: 1,
        leases: BTreeMap::new(),
        ended: Vec::new(),
        wait: 0.0,
    };
    for (user, expected) in [("owner", "registered already"), ("mallory", "registered with another key")] {
        world.tracker.sync(world.now, &rights(user), 99, 999, sync("server-0", "other"));
        let [(999, Err(Refusal(_, why)))] = &world.tracker.take_answers()[..] else { panic!("it is refused") };
        assert!(why.contains(expected), "{why}");
    }
    // The new run of a server that has ended takes its name over.
    world.tracker.disconnect(world.now, world.servers[0].connection);
    world.tracker.sync(world.now, &rights("owner"), 99, 1000, sync("server-0", "other"));
    assert!(matches!(&world.tracker.take_answers()[..], [(1000, Ok(_))]));
}

#[test]
fn priority_comes_first_and_many_devices_are_not_starved_by_few() {
    let mut world = World::new();
    (0..4).for_each(|at| world.sync(at, false));
    let request = |world: &mut World, user: &str, count: u32, priority: u8| {
        let ask = Ask { count, priority, timeout: 1000.0, ..ask("gpu") };
        world.ask(user.into(), ask, u64::MAX);
        world.calls
    };
    // Both devices are taken by one request each.
    let first = request(&mut world, "a", 1, 0);
    let second = request(&mut world, "b", 1, 0);
    let many = request(&mut world, "c", 2, 0);
    let later = request(&mut world, "d", 1, 0);
    let urgent = request(&mut world, "e", 1, 5);
    let turn = |world: &mut World| {
        for at in [0, 2, 0, 2] {
            world.sync(at, false);
        }
        world.run(Step::Begin(0));
        world.run(Step::Begin(2));
        for at in [0, 2] {
            world.sync(at, false);
        }
    };
    turn(&mut world);
    assert!(!world.clients.contains_key(&first) && !world.clients.contains_key(&second));
    // One device returns: the urgent request gets it. The next is kept for the request for two.
    world.run(Step::End(0));
    turn(&mut world);
    assert!(!world.clients.contains_key(&urgent));
    world.run(Step::End(0));
    turn(&mut world);
    assert!(world.clients.contains_key(&many) && world.clients.contains_key(&later));
    world.run(Step::End(2));
    turn(&mut world);
    assert!(!world.clients.contains_key(&many) && world.clients.contains_key(&later));
    world.run(Step::End(0));
    turn(&mut world);
    assert!(!world.clients.contains_key(&later));
}

/// Returns the state of a device in the summary.
fn shown(world: &World, name: &str) -> String {
    let summary = world.tracker.summary(world.now);
    let mut devices = summary["devices"].as_array().unwrap().iter();
    devices.find(|device| device["name"] == name).unwrap()["state"].as_str().unwrap().to_owned()
}

/// A server ends before it has accepted the key of its lease. The lease exists until the server returns or is forgotten, but its user
/// may have another device instead.
#[test]
fn a_lease_that_no_client_has_got_does_not_count() {
    let mut world = World::new();
    world.sync(0, false);
    let one = Rights { leases: 1, ..rights("u") };
    let (call, connection) = (world.call(), world.connection());
    world.tracker.request(world.now, &one, connection, call, Ask { timeout: 1000.0, ..ask("gpu") });
    world.settle();
    world.run(Step::KillServer(0));
    world.sync(2, false);
    assert_eq!(shown(&world, "server-2"), "free");
    world.run(Step::Advance(config().offer / 5));
    assert_eq!(shown(&world, "server-2"), "leased");
}

fn registration(name: String, labels: Labels, wait: f64) -> Sync {
    Sync {
        name,
        kind: "gpu".into(),
        labels,
        address: "h:1".into(),
        instance: "run".into(),
        number: 1,
        leases: BTreeMap::new(),
        ended: Vec::new(),
        wait,
    }
}

#[test]
fn a_server_that_waits_for_too_long_gets_an_answer() {
    let mut world = World::new();
    let sync = registration("server".into(), Labels::new(), 60.0);
    world.tracker.sync(world.now, &rights("owner"), 1, 1, sync);
    assert!(world.tracker.take_answers().is_empty());
    world.tracker.tick(world.now + config().lost);
    assert!(matches!(&world.tracker.take_answers()[..], [(1, Ok(_))]));
    assert_eq!(shown(&world, "server"), "offline");
}

/// An answer of the tracker has at most 256 KiB.
#[test]
fn the_summary_of_a_large_pool_fits_into_an_answer() {
    let mut world = World::new();
    let labels: Labels = (0..16).map(|at| (format!("label-{at}"), "v".repeat(64))).collect();
    for at in 0..500 {
        let sync = registration(format!("server-{at}"), labels.clone(), 0.0);
        world.tracker.sync(world.now, &rights("owner"), 1, at, sync);
    }
    let summary = world.tracker.summary(world.now);
    let shown = summary["devices"].as_array().unwrap().len();
    let omitted = summary["omitted"]["devices"].as_u64().unwrap() as usize;
    assert!(shown > 50 && omitted > 0 && shown + omitted == 500, "{shown} and {omitted}");
    assert_eq!(summary["omitted"]["queue"], 0);
    assert!(summary.to_string().len() < 250 << 10);
}
