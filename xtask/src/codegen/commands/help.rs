//! Generates the help text of a command.

use crate::codegen::commands::{Argument, Command, Opt};

/// Maximum length of a line.
const WIDTH: usize = 100;

/// Maximum number of options that the usage shows; more are shown as `[OPTION...]`.
const IN_USAGE: usize = 3;

/// Returns the help of a command. The part before the first empty line is its usage.
pub(super) fn text(command: &Command<'_>) -> String {
    let mut parts = vec![usage(command), wrapped(command.text("description"), "", "")];
    let commands: Vec<(String, String)> = command
        .subcommands()
        .iter()
        .map(|one| (one.text("name").to_owned(), one.text("help").to_owned()))
        .collect();
    let arguments: Vec<(String, String)> = command
        .arguments()
        .iter()
        .map(|one| (one.name().to_owned(), one.entry["help"].as_str().unwrap_or_default().to_owned()))
        .collect();
    let options: Vec<(String, String)> =
        command.options().iter().map(|one| (label(one), one.help().to_owned())).collect();
    for (title, rows) in [("commands", commands), ("arguments", arguments), ("options", options)] {
        if !rows.is_empty() {
            parts.push(section(title, &rows));
        }
    }
    if !command.text("epilog").is_empty() {
        parts.push(wrapped(command.text("epilog"), "", ""));
    }
    if !command.text("example").is_empty() {
        parts.push(format!("example: {}", command.text("example")));
    }
    parts.join("\n\n") + "\n"
}

fn usage(command: &Command<'_>) -> String {
    let mut words = vec![format!("usage: anyfn {}", command.path).trim_end().to_owned()];
    if !command.subcommands().is_empty() {
        words.push("COMMAND [OPTION...] [ARGUMENT...]".to_owned());
        return words.join(" ");
    }
    let (required, others): (Vec<Opt<'_>>, Vec<Opt<'_>>) =
        command.options().into_iter().skip(1).partition(|one| one.entry["group"] == "required");
    if !required.is_empty() {
        words.push(required.iter().map(|one| one.names[0]).collect::<Vec<_>>().join("|"));
    }
    if others.len() > IN_USAGE {
        words.push("[OPTION...]".to_owned());
    } else {
        let shown = others.iter().map(|one| {
            format!(
                "[{}]",
                one.value().map_or(one.names[0].to_owned(), |value| format!("{} {value}", one.names[0]))
            )
        });
        words.extend(shown);
    }
    words.extend(command.arguments().iter().map(counted));
    words.join(" ")
}

fn counted(argument: &Argument<'_>) -> String {
    let name = argument.name();
    match argument.entry["count"].as_str() {
        None => name.to_owned(),
        Some("+") => format!("{name}..."),
        Some(_) => format!("[{name}...]"),
    }
}

/// Returns the names of an option and its value, such as `-o, --output FILE`.
pub(super) fn label(option: &Opt<'_>) -> String {
    let names = option.names.join(", ");
    match option.value() {
        Some(value) if option.is_attached() => format!("{names}{value}"),
        Some(value) => format!("{names} {value}"),
        None => names,
    }
}

/// Formats a table of two columns under a title.
fn section(title: &str, rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    let rows =
        rows.iter().map(|(label, help)| wrapped(help, &format!("  {label:width$}  "), &" ".repeat(width + 4)));
    format!("{title}:\n{}", rows.collect::<Vec<_>>().join("\n"))
}

/// Breaks a text into lines. `first` precedes the first line, and `rest` the others.
fn wrapped(text: &str, first: &str, rest: &str) -> String {
    let (mut lines, mut line) = (Vec::new(), first.to_owned());
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.len() + 1 + word.len() > WIDTH {
            lines.push(std::mem::replace(&mut line, rest.to_owned()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
    lines.join("\n")
}
