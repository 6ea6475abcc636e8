// `dslaunch completion SHELL` prints the script that completes dslaunch's commands in a shell. The
// script gets the offers from `dslaunch complete -- WORDS…`, a subcommand for scripts only.
#include <fmt/core.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/text/command_line.h"
#include "launcher/jobs/known_jobs.h"
#include "launcher/manual/command_page.h"
#include "launcher/manual/completion.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {
namespace {

// bash splits the words of a line at `=` and `:` too, and replaces only the last piece.
constexpr const char* kBash =
    R"sh(# dslaunch's completion for bash. For this shell: source <(dslaunch completion bash)
# For all: dslaunch completion bash > ~/.local/share/bash-completion/completions/dslaunch
_dslaunch() {
    local i word typed head kind rest prefix name
    local -a words=() reply=() files=()
    for ((i = 1; i <= COMP_CWORD; ++i)); do
        word="${COMP_WORDS[i]}"
        if ((i > 1)) && [[ "$word" == [=:]* || "${COMP_WORDS[i-1]}" == [=:] ]]; then
            words[${#words[@]}-1]+="$word"
        else
            words+=("$word")
        fi
    done
    mapfile -t reply < <("${COMP_WORDS[0]/#\~/$HOME}" complete -- "${words[@]}" 2>/dev/null)
    COMPREPLY=()
    ((${#reply[@]})) || return
    head="${reply[0]}"
    kind="${head%%$'\t'*}"
    rest="${head#*$'\t'}"
    prefix="${rest#*$'\t'}"
    typed="${words[${#words[@]}-1]#"$prefix"}"
    [[ "$COMP_WORDBREAKS" == *=* ]] && prefix=""
    for word in "${reply[@]:1}"; do COMPREPLY+=("$prefix${word%%$'\t'*}"); done
    [[ "${rest%%$'\t'*}" == goes-on ]] && compopt -o nospace
    if [[ "$kind" == words ]]; then
        compopt +o default
    elif ((${#COMPREPLY[@]} == 0)); then
        # readline itself completes names of files.
        [[ "$kind" == folders ]] && compopt -o dirnames +o default
    else
        [[ "$kind" == folders ]] && kind=-d || kind=-f
        mapfile -t files < <(compgen $kind -- "$typed")
        for name in "${files[@]}"; do
            [[ -d "$name" ]] && { name+=/; ((${#files[@]} == 1)) && compopt -o nospace; }
            printf -v word '%q' "$name"
            COMPREPLY+=("$word")
        done
    fi
}
complete -o default -F _dslaunch dslaunch
)sh";

constexpr const char* kZsh = R"sh(#compdef dslaunch
# dslaunch's completion for zsh. For this shell, after compinit: source <(dslaunch completion zsh)
# For all: dslaunch completion zsh > FOLDER/_dslaunch, with FOLDER in fpath
_dslaunch() {
    local line prefix rest
    local -a reply offered blank
    reply=("${(@f)$("${(Q)words[1]/#\~/$HOME}" complete -- \
        "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    (( ${#reply[1]} )) || return 1
    rest="${reply[1]#*$'\t'}"
    prefix="${rest#*$'\t'}"
    if [[ -n "$prefix" ]]; then
        IPREFIX+="$prefix"
        PREFIX="${PREFIX[${#prefix}+1,-1]}"
    fi
    [[ "${rest%%$'\t'*}" == goes-on ]] && blank=(-S '')
    for line in "${(@)reply[2,-1]}"; do
        offered+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    local found=1
    (( ${#offered} )) && _describe -t words 'dslaunch' offered "${blank[@]}" && found=0
    case "${reply[1]%%$'\t'*}" in
        files) _files && found=0 ;;
        folders) _files -/ && found=0 ;;
    esac
    return found
}
if [[ "$funcstack[1]" == _dslaunch ]]; then
    _dslaunch "$@"
else
    compdef _dslaunch dslaunch
fi
)sh";

constexpr const char* kFish =
    R"sh(# dslaunch's completion for fish. For this shell: dslaunch completion fish | source
# For all: dslaunch completion fish > ~/.config/fish/completions/dslaunch.fish
function __dslaunch_complete
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    set -l current (commandline -ct)
    set -l reply (command $program complete -- $words "$current" 2>/dev/null)
    set -q reply[1]; or return
    set -l head (string split \t -- $reply[1])
    set -e reply[1]
    set -l prefix "$head[3]"
    for line in $reply
        printf '%s%s\n' "$prefix" $line
    end
    set -l typed (string sub -s (math (string length -- "$prefix") + 1) -- "$current")
    switch $head[1]
        case files
            for path in (complete -C "__dslaunch_no_command $typed")
                printf '%s%s\n' "$prefix" $path
            end
        case folders
            for path in (__fish_complete_directories "$typed" '')
                printf '%s%s\n' "$prefix" $path
            end
    end
end
complete -c dslaunch -f -a '(__dslaunch_complete)'
)sh";

const char* script_of(const std::string& shell) {
    return shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish;
}

}  // namespace

int completion_command(CommandWords arguments) {
    std::string shell;
    CommandLine app(
        {.does = "Prints a script that completes dslaunch's commands in a shell: "
                 "subcommands, options, their values, files, config keys and jobs.",
         .examples = {"source <(dslaunch completion bash)", "source <(dslaunch completion zsh)",
                      "dslaunch completion fish | source"},
         .docs = "docs/reference/cli.md",
         .usage = {"dslaunch completion SHELL"}},
        "dslaunch completion");
    app.add("SHELL", shell, "bash, zsh or fish").one_of({"bash", "zsh", "fish"});
    std::string named;
    app.add("--shell NAME", named).one_of({"bash", "zsh", "fish"}).hidden();
    if (!app.parse({arguments.begin(), arguments.end()})) return 0;
    if (shell.empty()) shell = named;
    if (shell.empty())
        fail(ExitCode::kUsage,
             "completion: name your shell: dslaunch completion bash, zsh or fish; `source "
             "<(dslaunch completion bash)` turns it on in this shell");
    fmt::print("{}", script_of(shell));
    return 0;
}

int complete_command(CommandWords arguments) {
    if (arguments.empty() || arguments[0] != "--")
        fail(ExitCode::kUsage,
             "usage: dslaunch complete -- WORDS (the script of `dslaunch completion` calls it)");
    const std::vector<std::string> nothing = {""};
    const CommandWords words = arguments.size() == 1 ? CommandWords(nothing) : arguments.subspan(1);
    const CompletionSources sources{accepted_page_of,
                                    [] { return read_jobs(own_state_directory()); }};
    fmt::print("{}", completion_lines(complete(words, sources)));
    return 0;
}

}  // namespace dslaunch::launcher
