//! Generates the completion script for bash.

use crate::codegen::commands::{Command, Completion, NOTE};

/// Part of the script that does not depend on the table.
const ENGINE: &str = r#"
# Sets the variable COMPREPLY to the completions of the word at the cursor.
_anyfn() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    local command= position=0 is_value= is_after_sign= is_ended= i word
    local commands options valued kinds rest
    # Bash splits `--option=value` into three words.
    if [[ $cur == = ]]; then
        cur=
        is_after_sign=1
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD-2]}
    fi
    _anyfn_table ''
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == = ]]; then
            # The value follows the sign.
            is_value=1
        elif [[ $is_value ]]; then
            is_value=
        elif [[ ! $is_ended && $word == -- ]]; then
            is_ended=1
        elif [[ ! $is_ended && $word == -* ]]; then
            [[ ${COMP_WORDS[i+1]} != = && " $valued " == *" $word "* ]] && is_value=1
        elif [[ $commands && " $commands " == *" $word "* ]]; then
            command="${command:+$command }$word"
            _anyfn_table "$command"
        else
            position=$((position + 1))
            [[ $rest && $position -ge $rest ]] && is_ended=1
        fi
    done
    COMPREPLY=()
    if [[ $is_value || $is_after_sign ]]; then
        _anyfn_value "$command" "$prev"
    elif [[ ! $is_ended && $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
    elif [[ $commands ]]; then
        [[ $position -gt 0 ]] && return
        COMPREPLY=($(compgen -W "$commands" -- "$cur"))
    elif [[ ${#kinds[@]} -gt 0 ]]; then
        [[ $position -ge ${#kinds[@]} ]] && position=$((${#kinds[@]} - 1))
        _anyfn_complete "${kinds[position]}"
    fi
}

# Completes the word at the cursor as a value of a kind.
_anyfn_complete() {
    local IFS=$'\n'
    case $1 in
        file)
            compopt -o filenames 2> /dev/null
            COMPREPLY=($(compgen -f -- "$cur"))
            ;;
        library)
            compopt -o filenames 2> /dev/null
            COMPREPLY=($(compgen -d -- "$cur"; compgen -f -X '!*.so' -- "$cur"))
            ;;
        folder)
            compopt -o filenames 2> /dev/null
            COMPREPLY=($(compgen -d -- "$cur"))
            ;;
        words=*)
            IFS=$' \t\n'
            COMPREPLY=($(compgen -W "${1#words=}" -- "$cur"))
            ;;
    esac
}
"#;

/// Returns the script.
pub(super) fn script(commands: &[Command<'_>]) -> String {
    let (mut table, mut values) = (String::new(), String::new());
    for command in commands {
        let path = &command.path;
        let names: Vec<&str> = command.subcommands().iter().map(|one| one.text("name")).collect();
        let options: Vec<&str> = command.options().iter().flat_map(|one| one.names.clone()).collect();
        let mut valued = Vec::new();
        for option in command.options().iter().filter(|one| one.value().is_some() && !one.is_attached()) {
            valued.extend(option.names.clone());
            let patterns = option.names.iter().map(|name| format!("'{path} {name}'"));
            if let Some(kind) = kind(&option.completion(), commands) {
                let pattern = patterns.collect::<Vec<_>>().join("|");
                values.push_str(&format!("        {pattern}) _anyfn_complete {kind} ;;\n"));
            }
        }
        let arguments = command.arguments();
        let kinds =
            arguments.iter().map(|one| kind(&one.completion(), commands).unwrap_or_else(|| "none".into()));
        let mut kinds: Vec<String> = kinds.collect();
        // The kind of the last argument is that of all further words.
        if arguments.last().is_some_and(|last| !last.is_many()) {
            kinds.push("none".into());
        }
        let rest = arguments.iter().position(|one| one.is_rest()).map_or(String::new(), |at| at.to_string());
        table.push_str(&format!(
            "        '{path}')\n            commands='{}'\n            options='{}'\n            valued='{}'\n            \
             kinds=({})\n            rest={rest}\n            ;;\n",
            names.join(" "),
            options.join(" "),
            valued.join(" "),
            kinds.join(" ")
        ));
    }
    format!(
        "# Completion of the command anyfn for bash. {NOTE}\n{ENGINE}\n\
         # Sets the variables that describe a command: the names of its subcommands, its options, those that have values,\n\
         # the kinds of its arguments, and the number of arguments after which no word is an option.\n\
         _anyfn_table() {{\n    case $1 in\n{table}    esac\n}}\n\n\
         # Completes the value of an option of a command.\n\
         _anyfn_value() {{\n    case \"$1 $2\" in\n{values}    esac\n}}\n\ncomplete -F _anyfn anyfn\n"
    )
}

/// Returns the argument of `_anyfn_complete` for a completion, or `None` if there is nothing to complete.
fn kind(completion: &Completion<'_>, commands: &[Command<'_>]) -> Option<String> {
    match completion {
        Completion::Nothing => None,
        Completion::File => Some("file".into()),
        Completion::Library => Some("library".into()),
        Completion::Folder => Some("folder".into()),
        Completion::Command => {
            let names: Vec<&str> = commands[0].subcommands().iter().map(|one| one.text("name")).collect();
            Some(format!("'words={}'", names.join(" ")))
        }
        Completion::Words(words) => Some(format!("'words={}'", words.join(" "))),
    }
}
