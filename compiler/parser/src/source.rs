//! Source, and errors that refer to a location in it.

use anyfn::Error;

pub(crate) struct Source<'a> {
    pub(crate) text: &'a str,
}

/// Maximum number of characters of a source line in an error message.
const SHOWN: usize = 120;

impl Source<'_> {
    /// Creates an error with the location of a byte offset: line number, column, and source line.
    pub(crate) fn error(&self, kind: &str, at: usize, message: &str) -> Error {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let text = self.text[line_start..].lines().next().unwrap_or_default();
        let column = before[line_start..].chars().count();
        let skipped = column.saturating_sub(SHOWN / 2);
        let shown: String = text.chars().skip(skipped).take(SHOWN).collect();
        let caret = " ".repeat(column - skipped);
        Error::untraced(kind, &format!("line {line}, column {}: {message}\n{shown}\n{caret}^", column + 1))
    }
}

/// Returns the word in `known` that is most similar to `word`. Returns `None` if no word in `known`
/// is similar enough.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = word.chars().count() / 3 + 1;
    let ranked = known.into_iter().map(|other| (distance(word, other), other));
    ranked
        .filter(|(distance, other)| *distance <= limit && *distance < other.len())
        .min()
        .map(|(_, other)| other)
}

/// Returns the edit distance of the first 32 characters of two strings: the minimum number of
/// substitutions, insertions, deletions and swaps of adjacent characters.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(32).collect(), b.chars().take(32).collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut best = change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[a.len()][b.len()]
}
