// `dslaunch man [SUBCOMMAND…]`: man pages made from the help of the commands themselves. It shows a
// page on a terminal, prints its source otherwise, and writes all pages with --output.
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/new_files.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "config/schema/schema.h"
#include "launch/process/spawn.h"
#include "launcher/links/deepspeed_names.h"
#include "launcher/manual/command_page.h"
#include "launcher/manual/man_page.h"
#include "launcher/options/machine.h"
#include "launcher/run/commands.h"
#include "storage/disk/output_place.h"

namespace dslaunch::launcher {
namespace {

// Returns the date of the pages: the date in SOURCE_DATE_EPOCH, which reproducible builds set, or
// otherwise the day on which this program was built.
std::string page_date() {
    struct stat program {};
    time_t when = ::stat("/proc/self/exe", &program) == 0 ? program.st_mtime : 0;
    if (const char* const epoch = std::getenv("SOURCE_DATE_EPOCH"))
        when = static_cast<time_t>(parse_int(epoch).value_or(when));
    tm parts{};
    ::gmtime_r(&when, &parts);
    return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

// Returns the commands that the page of PATH refers to: the command above it, and the commands
// directly below it.
std::vector<CommandPath> related(const CommandPath& path, const HelpPage& help) {
    std::vector<CommandPath> also;
    if (!path.empty()) also.emplace_back(path.begin(), path.end() - 1);
    for (const HelpEntry& entry : entries_of(help, "subcommands")) {
        also.push_back(path);
        also.back().push_back(entry.head);
    }
    return also;
}

std::string page_text(const CommandPath& path, HelpPage help, const std::string& date) {
    std::vector<CommandPath> also = related(path, help);
    return man_text({path, std::move(help), date, std::move(also)});
}

// Shows TEXT with the system's man. Returns false if the system has no man.
bool show(const std::string& text) {
    if (launch::find_program("man", launch::own_environment(), "").empty()) return false;
    std::FILE* const pager = ::popen("man -l -", "w");
    if (pager == nullptr) return false;
    std::fputs(text.c_str(), pager);
    return ::pclose(pager) == 0;
}

void write_all(const std::string& folder) {
    if (const int failed = make_folders(folder); failed != 0)
        fail(ExitCode::kDisk, "--output {}: cannot create this folder: {}", printable(folder),
             errno_text(failed));
    print_message("dslaunch: making the pages of all commands, which takes a moment");
    const std::string date = page_date();
    std::map<CommandPath, HelpPage> known;  // each page is asked for once
    const PageSource pages = [&](const CommandPath& path) {
        auto found = known.find(path);
        if (found == known.end()) found = known.emplace(path, accepted_page_of(path)).first;
        return found->second;
    };
    size_t written = 0;
    const auto write = [&](const CommandPath& path) {
        write_file_atomically(fmt::format("{}/{}.1", folder, man_name(path)),
                              page_text(path, pages(path), date));
        ++written;
    };
    write({});
    std::vector<std::string> without;  // commands whose page cannot be had
    for (const HelpEntry& entry : entries_of(known.at({}), "subcommands")) {
        try {
            for (const CommandPath& path : paths_below({entry.head}, pages)) write(path);
        } catch (const Error& error) {
            // A build without LibTorch has no dsworker, which answers some commands.
            const std::string worker = Machine::this_one().binary_directory + "/dsworker";
            if (error.code() != ExitCode::kSetup || ::access(worker.c_str(), F_OK) == 0) throw;
            without.push_back(entry.head);
        }
    }
    print_message(fmt::format("dslaunch: {} pages written to {}", written, printable(folder)));
    if (!without.empty())
        print_message(
            fmt::format("dslaunch: warning: the pages of {} are missing: dsworker, which answers "
                        "these commands, is not in dslaunch's folder",
                        join(without, ", ")));
}

std::vector<std::string> names_below(const CommandPath& path) {
    const HelpPage above = page_of(path);
    std::vector<std::string> names;
    for (const HelpEntry& entry : entries_of(above, "subcommands")) names.push_back(entry.head);
    return names;
}

// Returns the words of the command whose page is NAME, for example dslaunch-ckpt-export.1.
std::vector<std::string> words_of_page(std::string name) {
    if (name.ends_with(".1")) name.resize(name.size() - 2);
    if (name == "dslaunch") return {};
    if (!name.starts_with("dslaunch-")) return {name};
    std::string rest = name.substr(name.find('-') + 1);
    CommandPath path;
    while (!rest.empty()) {
        const std::vector<std::string> names = names_below(path);
        const auto first = std::ranges::find_if(names, [&](const std::string& one) {
            return rest == one || rest.starts_with(one + "-");
        });
        if (first == names.end()) return {name};
        path.push_back(*first);
        rest.erase(0, std::min(rest.size(), first->size() + 1));
    }
    return path;
}

// Returns the words of the command that WORDS mean. People write WORDS as for the system's man:
// with a section, with `dslaunch` in front, or as the name of a program of DeepSpeed.
std::vector<std::string> meant_command(std::vector<std::string> words) {
    if (words.size() > 1 && words.front() == "1") words.erase(words.begin());
    if (words.empty()) return words;
    std::vector<std::string> first = words_of_page(words.front());
    if (const DeepSpeedName* const row = find_deepspeed_name(words.front())) {
        const std::vector<std::string> help = {"--help"};
        first = row->translate(help);
        std::erase_if(first, [](const std::string& word) { return word.starts_with('-'); });
    }
    first.insert(first.end(), words.begin() + 1, words.end());
    return first;
}

[[noreturn]] void refuse_command(const CommandPath& above, const std::string& word,
                                 const std::vector<std::string>& names) {
    const std::string command = join(above, " ");
    if (names.empty())
        fail(ExitCode::kUsage, "man: `dslaunch {0}` has no subcommands: dslaunch man {0}", command);
    const auto near = nearest(word, names);
    const bool is_key = std::ranges::any_of(config::schema(), [&](const config::KeySpec& key) {
        return key.path.find(word) != std::string::npos;
    });
    fail(ExitCode::kUsage, "man: there is no command `dslaunch {}{}`; {}",
         above.empty() ? "" : command + " ", printable(word),
         near     ? fmt::format("did you mean `{}`?", *near)
         : is_key ? fmt::format("`dslaunch --help` lists the commands, `dslaunch config keys {}` "
                                "the keys of a config",
                                printable(word))
         : above.empty() ? "`dslaunch --help` lists the commands"
                         : "there are: " + join(names, ", "));
}

// Returns WORDS as the path of a command. Throws Error{kUsage} if there is no such command.
CommandPath named_command(const std::vector<std::string>& words) {
    CommandPath path;
    for (const std::string& word : meant_command(words)) {
        const std::vector<std::string> names = names_below(path);
        if (std::ranges::count(names, word) == 0) refuse_command(path, word, names);
        path.push_back(word);
    }
    return path;
}

// Writes the page of COMMAND to the file OUTPUT. If OUTPUT is a folder, the file in it gets the
// name of the page.
void write_one(const std::vector<std::string>& command, std::string output, bool replaces) {
    const CommandPath path = named_command(command);
    std::error_code unreadable;
    if (output.ends_with('/') || std::filesystem::is_directory(output, unreadable))
        output = (std::filesystem::path(output) / (man_name(path) + ".1")).string();
    storage::require_new_file(output, replaces);
    write_file_atomically(output, page_text(path, accepted_page_of(path), page_date()));
    print_message(fmt::format("dslaunch: the page is in {}", printable(output)));
}

}  // namespace

int man_command(CommandWords arguments) {
    std::vector<std::string> command;
    std::string output;
    bool replaces = false, all = false;
    CommandLine app(
        {.does = "Shows the man page of a command, or writes the pages of all commands. If the "
                 "output is not a terminal, prints the page's source.",
         .examples = {"dslaunch man ckpt export", "dslaunch man run > dslaunch-run.1",
                      "dslaunch man --output /usr/local/share/man/man1"},
         .docs = "docs/reference/cli.md"},
        "dslaunch man");
    app.add("SUBCOMMAND", command,
            "the words of a command, such as ckpt export; default: dslaunch");
    app.add("-o,--output DIR", output,
            "write the pages of all commands to this folder, as NAME.1; with SUBCOMMAND: write "
            "its page to this file or folder");
    app.add("--force", replaces, storage::kForceHelp);
    app.add("-a,--all", all).hidden();
    if (!app.parse({arguments.begin(), arguments.end()})) return 0;
    if (all && !command.empty())
        fail(ExitCode::kUsage, "man: --all and `{}` cannot be used together",
             printable(join(command, " ")));
    if (all && output.empty())
        fail(ExitCode::kUsage, "man: all pages need a folder: dslaunch man --output DIR");
    if (!output.empty()) {
        if (command.empty())
            write_all(output);
        else
            write_one(command, output, replaces);
        return 0;
    }
    const CommandPath path = named_command(command);
    const std::string text = page_text(path, accepted_page_of(path), page_date());
    if (::isatty(STDOUT_FILENO) != 1 || !show(text)) fmt::print("{}", text);
    return 0;
}

}  // namespace dslaunch::launcher
