//! Formatting of quantities for display.

use std::fmt;

/// Duration in seconds, displayed with a suitable unit: `1.234 us`.
pub(crate) struct Seconds(pub f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0.abs() {
            0.0 => return f.pad("0 s"),
            // A value that rounds to 1000 of a unit is shown as 1 of the next unit.
            t if t < 999.95e-9 => (self.0 * 1e9, "ns"),
            t if t < 999.95e-6 => (self.0 * 1e6, "us"),
            t if t < 999.95e-3 => (self.0 * 1e3, "ms"),
            _ => (self.0, "s"),
        };
        let digits = match value.abs() {
            v if v < 9.9995 => 3,
            v if v < 99.995 => 2,
            v if v < 999.95 => 1,
            _ => 0,
        };
        f.pad(&format!("{value:.digits$} {unit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_a_unit_that_fits() {
        let shown = |seconds: f64| Seconds(seconds).to_string();
        assert_eq!(shown(0.0), "0 s");
        assert_eq!(shown(3.2e-9), "3.200 ns");
        assert_eq!(shown(999.96e-9), "1.000 us");
        assert_eq!(shown(12.344e-6), "12.34 us");
        assert_eq!(shown(0.25), "250.0 ms");
        assert_eq!(shown(1234.5), "1234 s");
        assert_eq!(format!("{:>10}|", Seconds(1.0)), "   1.000 s|");
    }
}
