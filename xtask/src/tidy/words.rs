//! Checks the words of documentation against the tables of *Words we do not use* in `docs/glossary.md`.

use std::fs;
use std::path::Path;

use crate::process::Cmd;
use crate::result::Result;

const GLOSSARY: &str = "docs/glossary.md";

/// Heading of the glossary's table of phrases that are refused at the beginning of a summary.
const BEGINNINGS: &str = "### Beginnings of summaries";
const ANYWHERE: &str = "### Words and phrases";

/// Paths that are exempt from the check. The list must not grow.
const NOT_REWRITTEN: &[&str] = &[];

/// Minimum number of words in the summary of a public item.
const SUMMARY_WORDS_MIN: usize = 3;

/// Phrases that documentation must not contain.
struct Refused {
    /// Phrases that are refused at the beginning of a summary.
    beginnings: Vec<String>,
    /// Phrases that are refused anywhere, in lower case.
    anywhere: Vec<String>,
}

impl Refused {
    fn read(glossary: &str) -> Result<Refused> {
        let column = |heading: &str| -> Result<Vec<String>> {
            let (_, table) =
                glossary.split_once(heading).ok_or_else(|| format!("{GLOSSARY}: no heading `{heading}`"))?;
            let rows = table
                .lines()
                .skip_while(|line| !line.starts_with('|'))
                .take_while(|line| line.starts_with('|'));
            let cells = rows.skip(2).filter_map(|row| row.split('|').nth(1));
            Ok(cells.flat_map(|cell| cell.split(',')).map(|phrase| phrase.trim().to_owned()).collect())
        };
        let anywhere = column(ANYWHERE)?.iter().map(|phrase| phrase.to_lowercase()).collect();
        Ok(Refused { beginnings: column(BEGINNINGS)?, anywhere })
    }

    /// Returns the refused phrase with which a summary begins, if any.
    fn beginning(&self, summary: &str) -> Option<&str> {
        let is_it = |phrase: &&String| {
            summary.strip_prefix(phrase.as_str()).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        };
        self.beginnings.iter().find(is_it).map(String::as_str)
    }

    /// Returns a refused phrase in a line of prose, if any.
    fn within(&self, prose: &str) -> Option<&str> {
        let prose = prose.to_lowercase();
        let is_letter = |c: char| c.is_alphanumeric() || c == '_';
        let occurs = |phrase: &&String| {
            prose.match_indices(phrase.as_str()).any(|(at, _)| {
                !prose[..at].ends_with(is_letter) && !prose[at + phrase.len()..].starts_with(is_letter)
            })
        };
        self.anywhere.iter().find(occurs).map(String::as_str)
    }
}

/// Checks the doc comments of Rust files and the prose of Markdown files.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let glossary = fs::read_to_string(root.join(GLOSSARY)).map_err(|e| format!("{GLOSSARY}: {e}"))?;
    let refused = Refused::read(&glossary)?;
    let list = Cmd::new("git").words("ls-files --cached --others --exclude-standard").output()?;
    let mut found = Vec::new();
    for name in list.lines().filter(|name| !NOT_REWRITTEN.iter().any(|path| name.starts_with(path))) {
        // A file that git tracks may be absent from the working tree.
        let Ok(text) = fs::read_to_string(root.join(name)) else { continue };
        if name.ends_with(".rs") {
            found.extend(check_rust(&refused, name, &text));
        } else if name.ends_with(".md") && name != GLOSSARY {
            found.extend(check_page(&refused, name, &text));
        }
    }
    Ok(found)
}

fn check_rust(refused: &Refused, name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let (mut in_code, mut before) = (false, false);
    for (i, line) in lines.iter().enumerate() {
        let prose = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let Some(prose) = prose.filter(|_| !line.starts_with("////")) else {
            (in_code, before) = (false, false);
            continue;
        };
        let is_summary = !std::mem::replace(&mut before, true);
        let prose = prose.trim();
        if prose.starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let at = format!("{name}:{}", i + 1);
        if let Some(phrase) = refused.within(&without_code(prose)) {
            found.push(format!("{at}: `{phrase}` is a word that we do not use ({GLOSSARY})"));
        }
        if !is_summary {
            continue;
        }
        if let Some(phrase) = refused.beginning(prose) {
            found.push(format!("{at}: a summary begins with `{phrase}` ({GLOSSARY})"));
        }
        let rest = lines[i..].iter().skip_while(|line| line.starts_with("///") || line.starts_with("#["));
        let is_public = rest.clone().next().is_some_and(|item| is_public_item(item));
        let one_line = !lines.get(i + 1).is_some_and(|next| next.starts_with("///") && next.trim() != "///");
        if line.starts_with("///")
            && is_public
            && one_line
            && prose.split_whitespace().count() < SUMMARY_WORDS_MIN
        {
            found.push(format!("{at}: the summary of a public item has fewer than {SUMMARY_WORDS_MIN} words"));
        }
    }
    found
}

fn is_public_item(line: &str) -> bool {
    const ITEMS: [&str; 10] =
        ["fn ", "unsafe ", "const ", "extern ", "struct ", "enum ", "trait ", "type ", "static ", "mod "];
    line.strip_prefix("pub ").is_some_and(|item| ITEMS.iter().any(|kind| item.starts_with(kind)))
}

fn check_page(refused: &Refused, name: &str, text: &str) -> Vec<String> {
    let (mut found, mut in_code) = (Vec::new(), false);
    for (i, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code && let Some(phrase) = refused.within(&without_code(line)) {
            found.push(format!("{name}:{}: `{phrase}` is a word that we do not use ({GLOSSARY})", i + 1));
        }
    }
    found
}

/// Returns a line without the parts between backticks or quotation marks.
fn without_code(line: &str) -> String {
    let mut open = None;
    line.chars()
        .filter(|c| match open {
            None if matches!(c, '`' | '"') => {
                open = Some(*c);
                false
            }
            Some(mark) if *c == mark => {
                open = None;
                false
            }
            _ => open.is_none(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Refused {
        let glossary = format!(
            "{BEGINNINGS}\n\n| not | but |\n|---|---|\n| Whether, That of | Returns |\n\n\
             {ANYWHERE}\n\nText.\n\n| not | but |\n|---|---|\n| remark, other side | annotation |\n\n| x | y |\n"
        );
        Refused::read(&glossary).unwrap()
    }

    #[test]
    fn the_tables_of_the_glossary_are_read() {
        let refused = refused();
        assert_eq!(refused.beginnings, ["Whether", "That of"]);
        assert_eq!(refused.anywhere, ["remark", "other side"]);
        assert!(Refused::read("no tables").is_err());
    }

    #[test]
    fn bad_words_are_found_and_good_ones_are_not() {
        let count = |text: &str| check_rust(&refused(), "a.rs", text).len();
        assert_eq!(count("/// Whether it is so.\nfn f() {}\n"), 1);
        assert_eq!(count("    /// That of the caller.\n    x: u8,\n"), 1);
        assert_eq!(count("//! Whether this module is good.\n"), 1);
        assert_eq!(count("/// A summary.\n/// Whether it goes on is no summary.\nfn f() {}\n"), 0);
        assert_eq!(count("/// Whetherever.\nfn f() {}\n"), 0);
        assert_eq!(count("/// Adds a Remark.\nfn f() {}\n"), 1);
        assert_eq!(
            count("/// Adds a remarkable `remark`.\n///\n/// ```\n/// remark();\n/// ```\nfn f() {}\n"),
            0
        );
        assert_eq!(count("// A remark in an ordinary comment.\n"), 0);
        // Fewer than three words, of a public item only.
        assert_eq!(count("/// An index.\npub fn f() {}\n"), 1);
        assert_eq!(count("/// An index.\n#[inline]\npub const fn f() {}\n"), 1);
        assert_eq!(count("/// An index.\nfn f() {}\n"), 0);
        assert_eq!(count("/// An index\n/// of an axis.\npub fn f() {}\n"), 0);
        assert_eq!(check_page(&refused(), "a.md", "The other side.\n```\nremark\n```\n`remark`\n").len(), 1);
    }
}
