//! The log of a compiler that could not compile a program, with the lines of source that it names.

/// Maximum number of lines of source that are shown.
const MOST: usize = 10;

/// Returns the log, followed by the lines of `source` in which it reports errors.
pub(crate) fn with_source(log: &str, source: &str) -> String {
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

/// Finds the line number in a line of a log such as `kernel.cu(3): error: text` or, of a PTX assembler,
/// `ptxas application ptx input, line 7; error : text`.
fn line_number(line: &str) -> Option<usize> {
    let number = |text: &str| text.trim().parse().ok().filter(|number| *number > 0);
    let head = line.split(" error").next().unwrap_or(line);
    if let Some((_, rest)) = head.split_once("line ") {
        return number(rest.split([';', ',', ' ']).next()?);
    }
    let (before, _) = head.rsplit_once(')')?;
    number(before.rsplit_once('(')?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_in_logs() {
        for (line, number) in [
            ("kernel.cu(3): error: identifier \"q\" is undefined", Some(3)),
            ("ptxas application ptx input, line 12; error   : Unknown symbol 'x'", Some(12)),
            ("1 error detected in the compilation of \"kernel.cu\".", None),
            ("error", None),
        ] {
            assert_eq!(line_number(line), number, "{line}");
        }
    }

    #[test]
    fn the_lines_of_the_source_follow_the_log() {
        let source = "void f() {\n    int a = b;\n}\n";
        let text =
            with_source("kernel.cu(2): error: no b\nkernel.cu(2): error: no b\nkernel.cu(9): error", source);
        assert!(text.ends_with("kernel.cu(9): error\nline 2: int a = b;"), "{text}");
    }
}
