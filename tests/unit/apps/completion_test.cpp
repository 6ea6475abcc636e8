// Words and files that shells offer for a command line of dslaunch: first by dslaunch itself, then
// in bash, zsh and fish if they are installed.
#include "launcher/manual/completion.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "launcher/options/option_table.h"
#include "launcher/options/parse_run.h"
#include "launcher/subcommands.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/skip.h"

using namespace dslaunch;
using namespace dslaunch::launcher;
using namespace dslaunch::test;

namespace {

using Words = std::vector<std::string>;

// Returns the help page of a few commands, as they print it.
HelpPage page(const CommandPath& path) {
    if (path.empty()) return subcommands_page();
    if (path == CommandPath{"run"}) return run_page(false, false);
    const std::string name = join(path, " ");
    HelpPage made{.usage = {"dslaunch " + name + " [options] MORE"}};
    if (name == "ckpt")
        made.groups = {{"subcommands", {{"ls", "lists"}, {"export", "writes"}}}};
    else if (name == "ckpt export")
        made.groups = {{"arguments", {{"CHECKPOINT", "from"}, {"OUT", "to"}}},
                       {"options",
                        {{"--dtype NAME", "the type", {"fp32", "bf16", "fp16"}},
                         {"--config-from DIR", "a folder"},
                         {"--tensor GLOB", "some; repeatable"},
                         {"--force", "replace"}}}};
    else if (name == "stop" || name == "logs")
        made.groups = {{"arguments", {{"JOB", "the job"}}}, {"options", {{"--now", "at once"}}}};
    else if (name == "stop --pid")
        made.groups = {
            {"options", {{"--pid HOST:PID", "the process"}, {"-y, --yes", "no question"}}}};
    else if (name == "exec")
        made.groups = {{"hosts", {{"-H, --hostfile FILE", "hosts"}, {"--stream", "at once"}}}};
    else if (name == "config keys")
        made.groups = {{"arguments", {{"KEY", "a key"}}}};
    else if (name == "config")
        made.groups = {{"subcommands", {{"keys", "lists"}}}};
    else if (name == "health")
        made.usage = {"dslaunch health [options]"};
    return made;
}

std::vector<KnownJob> jobs() {
    KnownJob running, ended;
    running.id = "3f2a";
    running.target = "train.pt";
    running.state = "running";
    running.lives = true;
    ended.id = "77b0";
    ended.target = "train.py";
    ended.state = "ended";
    ended.exit_code = 0;
    return {running, ended};
}

Completion completed(const Words& words) {
    return complete(words, {page, jobs});
}

// Returns the offered words, joined by blanks.
std::string offers(const Words& words) {
    Words found;
    for (const Completion::Offer& offer : completed(words).offers) found.push_back(offer.word);
    return join(found, " ");
}

std::string kind(const Words& words) {
    const std::string lines = completion_lines(completed(words));
    return lines.substr(0, lines.find('\t'));
}

bool has(const std::string& text, const std::string& word) {
    return (" " + text + " ").find(" " + word + " ") != std::string::npos;
}

}  // namespace

TEST_CASE("subcommands, their options and the values of choices are offered") {
    const struct {
        Words words;
        const char* offers;
        const char* kind;
    } cases[] = {
        {{"ck"}, "ckpt", "files"},
        {{"ckpt", ""}, "ls export", "words"},
        {{"ckpt", "e"}, "export", "words"},
        {{"ckpt", "nothing", ""}, "", "words"},
        {{"help", "ckpt", "l"}, "ls", "words"},
        {{"man", "ckpt", "l"}, "ls", "words"},
        {{"ckpt", "export", "--"}, "--dtype --config-from --tensor --force", "words"},
        {{"ckpt", "export", "--d"}, "--dtype", "words"},
        {{"ckpt", "export", "--config_f"}, "--config_from", "words"},
        // A given option is not offered again, but a repeatable one is.
        {{"ckpt", "export", "--force", "--tensor", "a", "--"},
         "--dtype --config-from --tensor",
         "words"},
        {{"ckpt", "export", "--dtype", ""}, "fp32 bf16 fp16", "words"},
        {{"ckpt", "export", "--dtype", "b"}, "bf16", "words"},
        {{"ckpt", "export", "--dtype=f"}, "fp32 fp16", "words"},
        {{"ckpt", "export", "--dtype=fp32", "--c"}, "--config-from", "words"},
        {{"ckpt", "export", "--config-from", ""}, "", "folders"},
        {{"ckpt", "export", "--force=x"}, "", "words"},
        {{"ckpt", "export", "--tensor", ""}, "", "words"},
        {{"ckpt", "export", ""}, "", "files"},
        {{"ckpt", "export", "a", ""}, "", "files"},
        {{"ckpt", "export", "a", "b", ""}, "", "words"},
        {{"run", "--bind", ""}, "none core numa", "words"},
        {{"--device", "c"}, "cpu cuda", "words"},
        {{"run", "--hostfile", ""}, "", "files"},
        {{"run", "-H", ""}, "", "files"},
        {{"run", "--chdir="}, "", "folders"},
        {{"--num_g"}, "--num_gpus", "words"},
        // A model's options may follow the model, but a program's options are its own.
        {{"train.pt", "--dev"}, "--device", "words"},
        {{"train.py", "--dev"}, "", "files"},
        {{"run", "--", "train.py", "--dev"}, "", "files"},
        {{"exec", "--str"}, "--stream", "words"},
        {{"exec", "-H", "hosts", "ls", "--str"}, "", "files"},
        {{"health", ""}, "", "words"},
        {{"stop", "--pid=a:1", "--y"}, "--yes", "words"},
        {{"stop", "--y"}, "", "words"},
        {{"unknown-program", ""}, "", "files"},
    };
    for (const auto& [words, expected, kind_name] : cases) {
        CAPTURE(join(words, " "));
        CHECK(offers(words) == expected);
        CHECK(kind(words) == kind_name);
    }
    CHECK(completed({"ckpt", "export", "--dtype=f"}).prefix == "--dtype=");
    const std::string first = offers({""});
    for (const Subcommand& row : subcommands()) {
        INFO(row.name);
        CHECK(has(first, row.name) == (*row.help != '\0'));
    }
    const std::string options = offers({"--"});
    for (const OptionRow& row : option_rows()) {
        if (row.group == Group::kRefused) CHECK(!has(options, "--" + std::string(row.names)));
    }
}

TEST_CASE("jobs, config keys and the values of keys are offered") {
    CHECK(offers({"stop", ""}) == "3f2a");
    CHECK(offers({"logs", ""}) == "3f2a 77b0");
    CHECK(kind({"logs", ""}) == "folders");  // the --output folder of a job
    CHECK(completion_lines(completed({"logs", "7"})) == "folders\tblank\t\n77b0\tok, train.py\n");
    CHECK(offers({"--set", "zero_opt"}) == "zero_optimization.");
    CHECK(completed({"--set", "zero_opt"}).goes_on);
    CHECK(offers({"--set", "train_b"}) == "train_batch_size=");
    const Completion stage = completed({"run", "--set", "zero_optimization.stage="});
    CHECK(stage.prefix == "zero_optimization.stage=");
    CHECK(offers({"run", "--set", "zero_optimization.stage="}) == "0 1 2 3 auto");
    CHECK(completed({"run", "--set=bf16.enabled=t"}).prefix == "--set=bf16.enabled=");
    CHECK(offers({"run", "--set=bf16.enabled=t"}) == "true");
    CHECK(offers({"--set", "dslaunch.save.on_error="}) == "stop continue auto");
    CHECK(offers({"config", "keys", "dslaunch.lora.r"}) == "dslaunch.lora.r dslaunch.lora.rslora");
    // Refused keys are not offered.
    CHECK(!has(offers({"--set", ""}), "graph_harvesting="));
}

TEST_CASE("each word that the table of options offers is accepted by its option") {
    for (const OptionRow& row : option_rows()) {
        if (row.choices.empty()) continue;
        INFO(row.names);
        REQUIRE(row.apply != nullptr);
        for (const std::string& word : split(row.choices, '|')) {
            RunOptions options;
            INFO(word);
            CHECK_NOTHROW(row.apply(options, word));
        }
    }
}

TEST_CASE("the head of an option gives its names and its value") {
    const OptionHead out = parse_head("-o, --output DIR");
    CHECK(join(out.names, " ") == "-o --output");
    CHECK(out.value_name == "DIR");
    CHECK(!out.value_is_optional);
    const OptionHead resume = parse_head("--resume[=DIR]");
    CHECK(join(resume.names, " ") == "--resume");
    CHECK(resume.value_name == "DIR");
    CHECK(resume.value_is_optional);
    CHECK(parse_head("--env NAME[=VALUE]").value_name == "NAME[=VALUE]");
    CHECK(!parse_head("--env NAME[=VALUE]").value_is_optional);
    CHECK(parse_head("-q, --quiet").value_name.empty());
    CHECK(parse_head("-S").names == Words{"-S"});
}

namespace {

// A folder with a few files, and a shell in it that is asked for its offers.
class Shell {
  public:
    Shell() {
        for (const char* name : {"train.pt", "rows file.npy"})
            std::ofstream(folder_.path() + "/" + name) << "x";
        std::filesystem::create_directory(folder_.path() + "/results");
        // A program's name without its folder, as a user types it.
        std::filesystem::create_directory(folder_.path() + "/bin");
        std::filesystem::create_symlink(test::kDslaunch, folder_.path() + "/bin/dslaunch");
    }

    // Runs SCRIPT in the folder. Returns its lines, sorted; returns nothing if PROGRAM is missing.
    std::string run(const std::string& program, const std::string& script) {
        std::ofstream(folder_.path() + "/script") << script;
        JobProcess process(folder_, {"sh", "-c",
                                     "cd " + folder_.path() + " && command -v " + program +
                                         " >/dev/null || exit 127; PATH=$PWD/bin:$PATH HOME=$PWD " +
                                         program + " script"});
        const int code = process.wait();
        if (code == 127) return "missing";
        INFO(process.err());
        CHECK(code == 0);
        Words lines = split(trim(process.out()), '\n');
        for (std::string& line : lines) line = trim(line);
        std::ranges::sort(lines);
        lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
        return join(lines, "|");
    }

  private:
    TemporaryFolder folder_;
};

const struct {
    const char* line;     // as it is typed
    const char* offered;  // sorted
} kLines[] = {
    {"dslaunch conf", "config"},
    {"dslaunch config ", "check|keys|schema"},
    {"dslaunch ckpt export --dt", "--dtype"},
    {"dslaunch ckpt export --dtype b", "bf16"},
    {"dslaunch completion ", "bash|fish|zsh"},
    {"dslaunch run --log-level i", "info"},
    {"dslaunch run --set train_micro", "train_micro_batch_size_per_gpu="},
};

}  // namespace

TEST_CASE("bash offers what dslaunch says, and leaves files to readline") {
    Shell shell;
    // The words as bash passes them: it splits at `=` and `:`.
    const std::string ask =
        "source <(dslaunch completion bash)\n"
        "compopt() { echo \"opt $*\"; }\n"
        "ask() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _dslaunch 2>&1;\n"
        "        printf '%s\\n' \"${COMPREPLY[@]}\"; }\n";
    for (const auto& [line, offered] : kLines) {
        INFO(line);
        std::string words;
        for (const std::string& word : split(line, ' ')) words += " '" + word + "'";
        Words found = split(shell.run("bash", ask + "ask" + words), '|');
        std::erase_if(found, [](const std::string& line) { return line.starts_with("opt "); });
        CHECK(join(found, "|") == offered);
    }
    CHECK(shell.run("bash", ask + "ask dslaunch run --device = c") == "cpu|cuda|opt +o default");
    CHECK(shell.run("bash", ask + "ask dslaunch run --device =") == "auto|cpu|cuda|opt +o default");
    CHECK(shell.run("bash", ask + "COMP_WORDBREAKS=' '; ask dslaunch run --device=c") ==
          "--device=cpu|--device=cuda|opt +o default");
    CHECK(shell.run("bash", ask + "ask dslaunch run --config tr") == "");
    CHECK(shell.run("bash", ask + "ask dslaunch run --chdir r") == "opt -o dirnames +o default");
    CHECK(shell.run("bash", ask + "ask dslaunch r") == "report|results/|rows\\ file.npy|run");
}

TEST_CASE("fish offers what dslaunch says, with files and folders") {
    Shell shell;
    const std::string ask =
        "dslaunch completion fish | source\n"
        "function ask; complete -C $argv[1] | string replace -r '\\t.*' ''; true; end\n";
    for (const auto& [line, offered] : kLines) {
        INFO(line);
        const std::string found = shell.run("fish", ask + "ask '" + line + "'");
        if (found == "missing") return report_skipped("fish's completion", "fish is not installed");
        CHECK(found == offered);
    }
    CHECK(shell.run("fish", ask + "ask 'dslaunch run --device=c'") == "--device=cpu|--device=cuda");
    CHECK(shell.run("fish", ask + "ask 'dslaunch run --config tr'") == "train.pt");
    CHECK(shell.run("fish", ask + "ask 'dslaunch run --config=tr'") == "--config=train.pt");
    CHECK(shell.run("fish", ask + "ask 'dslaunch run --chdir r'") == "results/");
}

TEST_CASE("zsh offers what dslaunch says, with files and folders") {
    Shell shell;
    // zsh runs in a terminal of its own, and prints the list of matches between marks.
    const std::string ask = R"zsh(
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PROMPT=; autoload -Uz compinit; compinit -u -D; source <(dslaunch completion zsh)'
zpty -w shell 'bindkey "^I" complete-word; zstyle ":completion:*" insert-tab false'
zpty -w shell 'compadd() { local -a found; builtin compadd -O found "$@"'
zpty -w shell 'print -l -- "<$IPREFIX"${^found}">" >> offered; builtin compadd "$@"; }'
zpty -w shell 'print ready > ready'
while [[ ! -s ready ]]; do zpty -rt shell >/dev/null; sleep 0.05; done
ask() {
    zpty -w -n shell "$1"$'\t'
    zpty -w -n shell $'\C-u'
    zpty -w shell ''
    zpty -w shell "print done >> done"
    while [[ ! -s done ]]; do zpty -rt shell >/dev/null; sleep 0.05; done
    command rm -f done
    grep -o '<..*>' offered | sed 's/^<//; s/>$//' | sort -u
    command rm -f offered
}
# The first line of a new shell may be read before its keys are bound.
ask 'dslaunch help ' >/dev/null 2>&1
)zsh";
    for (const auto& [line, offered] : kLines) {
        INFO(line);
        const std::string found = shell.run("zsh", ask + "ask '" + line + "'");
        if (found == "missing") return report_skipped("zsh's completion", "zsh is not installed");
        CHECK(found == offered);
    }
}
