//! Generates the completion script for zsh.

use crate::codegen::commands::{Command, Completion, NOTE};

/// Returns the script: a function for each command, which passes the table to `_arguments`.
pub(super) fn script(commands: &[Command<'_>]) -> String {
    let mut text = format!("#compdef anyfn\n# Completion of the command anyfn for zsh. {NOTE}\n");
    for command in commands {
        let subcommands = command.subcommands();
        let mut specs = Vec::new();
        for option in command.options() {
            // An option with several names excludes the other names, and `--help` everything.
            let others = if option.entry.is_null() { "- *".to_owned() } else { option.names.join(" ") };
            for name in &option.names {
                let (mark, value) = match option.value() {
                    Some(value) => {
                        let mark = if option.is_attached() {
                            "-"
                        } else if name.starts_with("--") {
                            "="
                        } else {
                            "+"
                        };
                        (mark, format!(":{}:{}", escaped(value), action(&option.completion(), commands)))
                    }
                    None => ("", String::new()),
                };
                let exclusion = if option.is_many() { "*".to_owned() } else { format!("({others})") };
                specs.push(format!("{exclusion}{name}{mark}[{}]{value}", escaped(option.help())));
            }
        }
        for argument in command.arguments() {
            let count = match argument.entry["count"].as_str() {
                None => ":",
                Some("rest") => "*::",
                Some(_) => "*:",
            };
            specs.push(format!(
                "{count}{}:{}",
                escaped(argument.name()),
                action(&argument.completion(), commands)
            ));
        }
        if !subcommands.is_empty() {
            specs.extend(["1:COMMAND:->command".to_owned(), "*::ARGUMENT:->argument".to_owned()]);
        }
        let specs: String = specs.iter().map(|spec| format!(" \\\n        {}", quoted(spec))).collect();
        text.push_str(&format!("\n{}() {{\n", function(&command.path)));
        if subcommands.is_empty() {
            text.push_str(&format!("    _arguments -S{specs}\n}}\n"));
            continue;
        }
        let names = subcommands
            .iter()
            .map(|one| format!("        {}\n", quoted(&format!("{}:{}", one.text("name"), one.text("help")))));
        let cases = subcommands
            .iter()
            .map(|one| format!("                {}) {} ;;\n", one.text("name"), function(&one.path)));
        text.push_str(&format!(
            "    local curcontext=$curcontext state line ret=1\n    local -A opt_args\n    local -a names\n    names=(\n{}    )\n    \
             _arguments -C -S{specs} && ret=0\n    case $state in\n        command) _describe -t commands command names && ret=0 ;;\n        \
             argument)\n            case $words[1] in\n{}            esac\n            ret=$?\n            ;;\n    esac\n    \
             return ret\n}}\n",
            names.collect::<String>(),
            cases.collect::<String>()
        ));
    }
    // The script is either sourced, or a file of the search path of functions that zsh loads at the first completion.
    text + "\nif [[ $funcstack[1] == _anyfn ]]; then\n    _anyfn \"$@\"\nelse\n    compdef _anyfn anyfn\nfi\n"
}

/// Returns the name of the function that completes a command.
fn function(path: &str) -> String {
    format!("_anyfn {path}").trim_end().replace(' ', "_")
}

fn action(completion: &Completion<'_>, commands: &[Command<'_>]) -> String {
    match completion {
        Completion::Nothing => " ".into(),
        Completion::File => "_files".into(),
        Completion::Library => "_files -g \"*.so(-.)\"".into(),
        Completion::Folder => "_files -/".into(),
        Completion::Command => {
            let names: Vec<&str> = commands[0].subcommands().iter().map(|one| one.text("name")).collect();
            format!("({})", names.join(" "))
        }
        Completion::Words(words) => format!("({})", words.join(" ")),
    }
}

/// Escapes a text within a specification of `_arguments`.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace(':', "\\:").replace('[', "\\[").replace(']', "\\]")
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
