//! Export of the timeline as trace events, which `chrome://tracing` and Perfetto's viewer show.
//!
//! Each call, and each command that a device has executed, is one complete event (`"ph": "X"`) with times in microseconds from the start. Metadata events name the
//! process and its threads. Viewers infer from the times which calls are nested.

use std::io::{self, Write};

use anyfn::observe::door;

use super::recorded::DEVICE;
use super::report::Profile;

impl Profile {
    /// Writes the timeline of the profile to `out`, as JSON in the trace event format.
    ///
    /// # Errors
    /// Returns an error that occurs when writing to `out`.
    pub fn write_trace(&self, out: &mut dyn Write) -> io::Result<()> {
        let process = std::process::id();
        let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"otherData\":{\"made_by\":\"anyfn\",\"dropped\":\"")?;
        writeln!(out, "{}\"}},\"traceEvents\":[", self.dropped)?;
        let metadata = |out: &mut dyn Write, what: &str, thread: u64, name: &str| {
            write!(
                out,
                "{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{process},\"tid\":{thread},\"args\":{{\"name\":"
            )?;
            write_text(out, name)?;
            out.write_all(b"}}")
        };
        metadata(out, "process_name", 0, program.trim_end())?;
        for thread in self.threads.iter().chain(&self.devices) {
            out.write_all(b",\n")?;
            metadata(out, "thread_name", thread.number, &thread.name)?;
        }
        for thread in self.threads.iter().chain(&self.devices) {
            for event in &thread.events {
                out.write_all(b",\n{\"ph\":\"X\",\"name\":")?;
                write_text(out, self.texts.get(event.name))?;
                let category = match event.door {
                    door::RUST => "rust",
                    door::C => "c",
                    door::PYTHON => "python",
                    door::TO_PYTHON => "to python",
                    DEVICE => "device",
                    _ => "call",
                };
                let micros = |nanos: u64| (nanos / 1000, nanos % 1000);
                let (start, start_rest) = micros(event.start.saturating_sub(self.began));
                let (time, time_rest) = micros(event.nanos);
                write!(
                    out,
                    ",\"cat\":\"{category}\",\"pid\":{process},\"tid\":{},\"ts\":{start}.{start_rest:03},\"dur\":{time}.\
                     {time_rest:03}",
                    thread.number
                )?;
                let mut fields = Vec::new();
                if event.args != 0 {
                    let mut field = b"\"arguments\":".to_vec();
                    write_text(&mut field, self.texts.get(event.args))?;
                    fields.push(field);
                }
                if event.failed {
                    fields.push(b"\"error\":true".to_vec());
                }
                if event.open {
                    fields.push(b"\"unfinished\":true".to_vec());
                }
                if !fields.is_empty() {
                    out.write_all(b",\"args\":{")?;
                    out.write_all(&fields.join(&b','))?;
                    out.write_all(b"}")?;
                }
                out.write_all(b"}")?;
            }
        }
        out.write_all(b"\n]}\n")
    }
}

/// Writes a string as a JSON string, with quotation marks.
fn write_text(out: &mut dyn Write, text: &str) -> io::Result<()> {
    out.write_all(b"\"")?;
    for c in text.chars() {
        match c {
            '"' => out.write_all(b"\\\"")?,
            '\\' => out.write_all(b"\\\\")?,
            c if c < ' ' || c == '\u{7f}' => write!(out, "\\u{:04x}", c as u32)?,
            c => write!(out, "{c}")?,
        }
    }
    out.write_all(b"\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let mut out = Vec::new();
        write_text(&mut out, "a\"b\\c\n\u{1f}ä").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\"a\\\"b\\\\c\\u000a\\u001fä\"");
    }
}
