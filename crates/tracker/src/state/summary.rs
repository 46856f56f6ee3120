//! Description of the state for people and programs.

use serde_json::{Value, json};

use super::{Millis, Stage, Tracker};

/// Maximum length in bytes of each of the two lists, so that both fit into an answer.
const LIST_MAX: usize = 96 << 10;

/// Returns as many entries as fit into an answer, and the number of the others.
fn first(all: impl Iterator<Item = Value>) -> (Vec<Value>, usize) {
    let (mut list, mut omitted, mut length) = (Vec::new(), 0, 0);
    for entry in all {
        length += if omitted == 0 { entry.to_string().len() + 1 } else { 0 };
        if length > LIST_MAX {
            omitted += 1;
        } else {
            list.push(entry);
        }
    }
    (list, omitted)
}

impl Tracker {
    /// Returns a description of the devices, the leases and the queue. Of long lists, it contains the first entries and the number of
    /// omitted ones.
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
        let ((devices, more), (queue, longer)) = (first(devices), first(waiting));
        let omitted = json!({ "devices": more, "queue": longer });
        json!({ "devices": devices, "queue": queue, "omitted": omitted, "counts": self.counts })
    }
}
