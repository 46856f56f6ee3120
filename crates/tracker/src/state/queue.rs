//! The queue: which request is granted next.

use std::collections::{BTreeMap, BTreeSet};

use super::{Device, LeaseRecord, Millis, Record, Request, RequestId, Stage, Tracker, fits};

impl Tracker {
    /// Returns the waiting requests in the order in which they are served: by priority, then the user whose last grant is the
    /// longest ago, then by arrival.
    pub(super) fn order(&self) -> Vec<&Request> {
        let waits = |request: &&Request| request.leases.is_empty() && request.attached.is_some();
        let mut queue: Vec<&Request> = self.requests.values().filter(waits).collect();
        queue.sort_by_key(|request| {
            let entry = &request.entry;
            let turn = self.turns.get(&entry.request.0).copied().unwrap_or(0);
            (u8::MAX - entry.priority, turn, entry.arrival)
        });
        queue
    }

    /// Returns the number of leases of each user, without leases that their requests have lost: no client has received the keys of those,
    /// and their servers may be offline for long.
    fn held(&self) -> BTreeMap<&str, usize> {
        let mut held = BTreeMap::new();
        for request in self.requests.values().filter(|request| !request.leases.is_empty()) {
            *held.entry(request.entry.request.0.as_str()).or_default() += request.leases.len();
        }
        held
    }

    /// Grants the first request that can be granted. Returns false if no request can.
    ///
    /// Free devices that a request could use are kept for it if it needs more of them, so that requests for few devices cannot
    /// overtake one for many forever.
    pub(super) fn grant_next(&mut self, now: Millis) -> bool {
        // A long queue waits while no device is free; nothing is sorted then.
        let mut left: Vec<&Device> = self.devices.values().filter(|device| device.is_free()).collect();
        if left.is_empty() {
            return false;
        }
        let mut kinds: BTreeSet<&str> = left.iter().map(|device| device.registration.kind.as_str()).collect();
        let held = self.held();
        let mut next: Option<(RequestId, Vec<String>, u64)> = None;
        for request in self.order() {
            let (entry, count) = (&request.entry, request.entry.count as usize);
            if !kinds.contains(entry.kind.as_str()) {
                continue;
            }
            let held = held.get(entry.request.0.as_str()).copied().unwrap_or(0);
            if held + count > request.rights.leases as usize {
                continue;
            }
            let is_usable = |device: &&Device| fits(&entry.kind, &entry.labels, &device.registration);
            let mut free: Vec<&Device> = left.iter().copied().filter(is_usable).collect();
            if free.len() >= count {
                free.sort_by_key(|device| device.used);
                let names = free.into_iter().take(count).map(Device::name).collect();
                next = Some((entry.request.clone(), names, request.rights.seconds));
                break;
            }
            let online = self.devices.values().filter(|device| device.online.is_some());
            if !free.is_empty() && online.filter(is_usable).count() >= count {
                left.retain(|device| !is_usable(device));
                kinds = left.iter().map(|device| device.registration.kind.as_str()).collect();
            }
        }
        let Some((request, devices, seconds)) = next else { return false };
        let lease = |device: &String| {
            let (lease, secret) = (self.make_key)();
            LeaseRecord { lease, device: device.clone(), secret, seconds }
        };
        let leases: Vec<LeaseRecord> = devices.iter().map(lease).collect();
        self.commit(Record::Grant { request, leases: leases.clone() });
        for lease in &leases {
            if let Some(lease) = self.leases.get_mut(&lease.lease) {
                lease.stage = Stage::Offered(now + self.config.offer);
            }
            self.notify(&lease.device);
        }
        true
    }
}
