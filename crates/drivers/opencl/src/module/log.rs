//! The log of a driver that could not build a program, with the lines of source that it names.

/// Returns the log, followed by the lines of `source` in which it reports errors.
pub(super) fn with_source(log: &str, source: &str) -> String {
    let mut text = log.trim().to_owned();
    let mut shown = Vec::new();
    for line in log.lines().filter(|line| line.contains("error")) {
        let Some(number) = line_number(line) else { continue };
        let Some(code) = source.lines().nth(number - 1) else { continue };
        if !shown.contains(&number) && shown.len() < MOST {
            text += &format!("\nline {number}: {}", code.trim());
            shown.push(number);
        }
    }
    text
}

/// Maximum number of lines of source that are shown.
const MOST: usize = 10;

/// Finds the line number in a line of a log such as `error: a.cl:3:14: unknown name` or `3:14: error: unknown name`:
/// the first number that is followed by the number of a column. If three numbers follow each other, the first one is that
/// of a source of the program.
fn line_number(line: &str) -> Option<usize> {
    let numbers: Vec<Option<usize>> =
        line.split(':').map(|part| part.trim().parse().ok().filter(|number| *number > 0)).collect();
    numbers.windows(3).find_map(|numbers| match *numbers {
        [Some(_), Some(line), Some(_)] | [Some(line), Some(_), None] => Some(line),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_in_the_logs_of_several_drivers() {
        for (line, number) in [
            ("error: kcache/tempfile_yoQHQ3.cl:3:33: use of undeclared identifier 'q'", Some(3)),
            ("<kernel>:12:5: error: expected ';'", Some(12)),
            ("comgr-1/input/CompileSource:7:1: error: unknown type name", Some(7)),
            ("1:4:9: error: use of undeclared identifier", Some(4)),
            ("error: out of registers", None),
            ("error: 7", None),
        ] {
            assert_eq!(line_number(line), number, "{line}");
        }
    }

    #[test]
    fn the_lines_of_the_source_follow_the_log() {
        let source = "kernel void f() {\n    int a = b;\n}\n";
        let text = with_source(
            "warning: 1:1: nothing\na.cl:2:13: error: no b\na.cl:2:14: error: no b\na.cl:9:1: error",
            source,
        );
        assert!(text.ends_with("a.cl:9:1: error\nline 2: int a = b;"), "{text}");
    }
}
