//! Audit log of a server: one JSON object per line, with time, session and event.
//!
//! Secrets are never logged. Strings from sessions and clients are written as JSON with everything but printable ASCII escaped,
//! so that they can neither end a line nor affect a terminal.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

/// Destination of a server's audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Log {
    /// Nothing is logged.
    #[default]
    None,
    /// The log is written to standard error.
    Stderr,
    /// The log is appended to this file. If the file does not exist, it is created so that only its owner can
    /// access it.
    File(PathBuf),
}

/// Audit log of a running server.
pub(crate) struct Audit {
    file: Option<Box<dyn Write + Send>>,
    /// Number of lines that could not be written since the last successful write.
    lost: u64,
}

impl Audit {
    pub(crate) fn open(log: &Log) -> io::Result<Audit> {
        let file: Option<Box<dyn Write + Send>> = match log {
            Log::None => None,
            Log::Stderr => Some(Box::new(io::stderr())),
            Log::File(path) => {
                Some(Box::new(File::options().create(true).append(true).mode(0o600).open(path)?))
            }
        };
        Ok(Audit { file, lost: 0 })
    }

    /// Writes a line to the log. If writing fails, the server continues, and the next line that is written
    /// successfully states how many lines were lost.
    pub(crate) fn write(&mut self, event: &str, session: Option<u64>, detail: Map<String, Value>) {
        let Some(file) = &mut self.file else { return };
        let mut line = Map::new();
        line.insert("time".into(), Value::String(time_text(SystemTime::now())));
        line.insert("event".into(), Value::String(event.into()));
        if let Some(session) = session {
            line.insert("session".into(), session.into());
        }
        if self.lost > 0 {
            line.insert("lines_lost".into(), self.lost.into());
        }
        if !detail.is_empty() {
            line.insert("detail".into(), Value::Object(detail));
        }
        let mut text = ascii(&Value::Object(line).to_string());
        text.push('\n');
        match file.write_all(text.as_bytes()) {
            Ok(()) => self.lost = 0,
            Err(_) => self.lost += 1,
        }
    }
}

/// Escapes all characters of a JSON document that are not printable ASCII.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + 1);
    for unit in json.encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte @ 0x20..=0x7e) => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\u{unit:04x}")),
        }
    }
    text
}

/// Formats a time in UTC, as `2026-01-31T12:00:00.000Z`.
fn time_text(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let milliseconds = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// Converts a number of days since 1 January 1970 to year, month and day.
fn date(days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // Whole periods of 400 years are skipped, so that the loop is short for any time.
    let (mut year, mut days) = (1970 + days / 146_097 * 400, days % 146_097);
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times() {
        let text = |seconds| time_text(UNIX_EPOCH + Duration::from_millis(seconds));
        assert_eq!(text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(text(1_798_761_599_999), "2026-12-31T23:59:59.999Z");
        assert_eq!(text(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn nothing_but_plain_text() {
        let text = ascii(&Value::String("a\u{1b}[2J\n\u{9b}\u{202e}\u{1f600}\"".into()).to_string());
        assert!(text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)), "{text}");
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back, Value::String("a\u{1b}[2J\n\u{9b}\u{202e}\u{1f600}\"".into()));
    }
}
