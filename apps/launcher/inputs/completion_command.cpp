// `dslaunch completion bash|zsh`: prints a completion script for the shell, with the words that it
// offers.
#include <fmt/core.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "base/text/command_line.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {
namespace {

// The options and subcommands of a command are taken from its own --help, so the script needs no
// list of them.
constexpr const char* kOfferedWords = R"sh(_dslaunch_words() {
    local command=""
    local word
    for word in "$@"; do
        case "$word" in -*) break ;; *) command="$command $word" ;; esac
        case "$word" in config|model|data|tokens|hosts|ckpt) ;; *) break ;; esac
    done
    if [ -z "$command" ]; then echo "@SUBCOMMANDS@"; fi
    dslaunch ${=COMMAND} --help 2>/dev/null | sed -n \
        -e 's/^  \(-[A-Za-z], \)\{0,1\}\(--[a-z0-9-]*\).*/\2/p' \
        -e '/^subcommands:*$/,/^$/s/^  \([a-z0-9_-]*\) .*/\1/p'
}
)sh";

constexpr const char* kBash =
    R"sh(# dslaunch's completion for bash: source <(dslaunch completion bash)
@WORDS@
_dslaunch() {
    local current="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ] || [ "${current#-}" != "$current" ] || [ "$COMP_CWORD" -eq 2 ]; then
        local words="$(_dslaunch_words "${COMP_WORDS[@]:1:COMP_CWORD-1}")"
        COMPREPLY=($(compgen -W "$words" -- "$current"))
    fi
    COMPREPLY+=($(compgen -f -- "$current"))
}
complete -o filenames -F _dslaunch dslaunch
)sh";

constexpr const char* kZsh = R"sh(#compdef dslaunch
# dslaunch's completion for zsh: source <(dslaunch completion zsh)
@WORDS@
_dslaunch() {
    local -a offered
    if (( CURRENT <= 3 )) || [[ "${words[CURRENT]}" == -* ]]; then
        offered=($(_dslaunch_words "${(@)words[2,CURRENT-1]}"))
        compadd -- $offered
    fi
    _files
}
compdef _dslaunch dslaunch
)sh";

std::string with(std::string text, const std::string& mark, const std::string& value) {
    if (const size_t at = text.find(mark); at != text.npos) text.replace(at, mark.size(), value);
    return text;
}

}  // namespace

int completion_command(std::span<const std::string> arguments,
                       std::span<const std::string> subcommands) {
    std::string shell;
    CommandLine app(
        {.does = "Prints a script that completes dslaunch's commands in a shell.",
         .examples = {"source <(dslaunch completion bash)", "source <(dslaunch completion zsh)"},
         .docs = "docs/reference/cli.md"},
        "dslaunch completion");
    app.add("SHELL", shell, "bash or zsh").required().one_of({"bash", "zsh"});
    if (!app.parse({arguments.begin(), arguments.end()})) return 0;
    const std::string names =
        join(std::vector<std::string>(subcommands.begin(), subcommands.end()), " ");
    // zsh splits the words of a variable only if it is asked to.
    const std::string words = with(with(kOfferedWords, "@SUBCOMMANDS@", names), "${=COMMAND}",
                                   shell == "zsh" ? "${=command}" : "$command");
    fmt::print("{}", with(shell == "zsh" ? kZsh : kBash, "@WORDS@\n", words));
    return 0;
}

}  // namespace dslaunch::launcher
