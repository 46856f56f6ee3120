//! Generates the completion script for fish.

use crate::codegen::commands::{Command, Completion, NOTE};

/// Function that selects the rules of a command.
const ENGINE: &str = r#"
# Succeeds if the words before the cursor, without options, begin with the words of a command, and none of the remaining
# arguments follows directly, which are the names of its subcommands.
function __anyfn_at
    set -l words (commandline -opc)
    set -l at
    for word in $words[2..-1]
        string match -q -- '-*' $word; or set -a at $word
    end
    set -l path (string split -n ' ' -- $argv[1])
    set -l length (count $path)
    test (count $at) -ge $length; or return 1
    test $length -eq 0; or test "$at[1..$length]" = "$path"; or return 1
    set -l next $at[(math $length + 1)]
    not contains -- "$next" $argv[2..-1]
end
"#;

/// Returns the script.
pub(super) fn script(commands: &[Command<'_>]) -> String {
    let mut text =
        format!("# Completion of the command anyfn for fish. {NOTE}\n{ENGINE}\ncomplete -c anyfn -f\n");
    for command in commands {
        let names: Vec<&str> = command.subcommands().iter().map(|one| one.text("name")).collect();
        let condition = format!("__anyfn_at {} {}", quoted(&command.path), names.join(" "));
        let rule = format!("complete -c anyfn -n {}", quoted(condition.trim_end()));
        text.push('\n');
        for one in command.subcommands() {
            text.push_str(&format!("{rule} -a {} -d {}\n", one.text("name"), quoted(one.text("help"))));
        }
        for option in command.options() {
            let names = option.names.iter().map(|name| match name.strip_prefix("--") {
                Some(long) => format!(" -l {long}"),
                None => format!(" -s {}", name.trim_start_matches('-')),
            });
            let value = match (option.value().is_some(), option.is_attached()) {
                (true, false) => format!(" -r{}", values(&option.completion(), commands)),
                _ => String::new(),
            };
            let names: String = names.collect();
            text.push_str(&format!("{rule}{names}{value} -d {}\n", quoted(option.help())));
        }
        for argument in command.arguments() {
            let values = values(&argument.completion(), commands);
            if !values.is_empty() && values != " -f" {
                text.push_str(&format!("{rule}{values}\n"));
            }
        }
    }
    text
}

/// Returns the options of `complete` for the values of an option or argument.
fn values(completion: &Completion<'_>, commands: &[Command<'_>]) -> String {
    match completion {
        Completion::Nothing => " -f".into(),
        Completion::File => " -F".into(),
        Completion::Library => " -f -a '(__fish_complete_suffix .so)'".into(),
        Completion::Folder => " -f -a '(__fish_complete_directories)'".into(),
        Completion::Command => {
            let names: Vec<&str> = commands[0].subcommands().iter().map(|one| one.text("name")).collect();
            format!(" -f -a {}", quoted(&names.join(" ")))
        }
        Completion::Words(words) => format!(" -f -a {}", quoted(&words.join(" "))),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
