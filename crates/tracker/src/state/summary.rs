//! Description of the state for people and programs.

use serde_json::{Value, json};

use super::{Millis, Stage, Tracker};

impl Tracker {
    /// Returns a description of the devices, the leases and the queue.
    pub fn summary(&self, now: Millis) -> Value {
        let devices = self.devices.values().map(|device| {
            let known = &device.registration;
            let lease = device.lease.as_ref().and_then(|lease| self.leases.get(lease));
            let state = match (device.online, lease.map(|lease| lease.stage)) {
                (None, _) => "offline",
                (_, None) if device.is_free() => "free",
                (_, Some(Stage::Active)) => "active",
                (_, Some(Stage::Ending) | None) => "ending",
                (_, Some(_)) => "leased",
            };
            json!({
                "name": known.name, "kind": known.kind, "labels": known.labels, "address": known.address, "state": state,
                "user": lease.map(|lease| &lease.request.0), "seen_seconds": now.saturating_sub(device.seen) / 1000,
            })
        });
        let waiting = self.order().into_iter().map(|request| {
            let entry = &request.entry;
            json!({
                "user": entry.request.0, "kind": entry.kind, "labels": entry.labels, "count": entry.count,
                "priority": entry.priority,
            })
        });
        let (devices, queue) = (devices.collect::<Vec<_>>(), waiting.collect::<Vec<_>>());
        json!({ "devices": devices, "queue": queue, "counts": self.counts })
    }
}
