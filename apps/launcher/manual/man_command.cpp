// `dslaunch man [SUBCOMMAND…]`: man pages made from the help of the commands themselves. It shows a
// page on a terminal, prints its source otherwise, and writes all pages with --output.
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/new_files.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "launch/process/spawn.h"
#include "launcher/manual/command_page.h"
#include "launcher/manual/man_page.h"
#include "launcher/options/machine.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {
namespace {

// Returns the date of the pages: SOURCE_DATE_EPOCH, as for programs that are built reproducibly, or
// else the day on which this program was built.
std::string page_date() {
    struct stat program {};
    time_t when = ::stat("/proc/self/exe", &program) == 0 ? program.st_mtime : 0;
    if (const char* const epoch = std::getenv("SOURCE_DATE_EPOCH"))
        when = static_cast<time_t>(parse_int(epoch).value_or(when));
    tm parts{};
    ::gmtime_r(&when, &parts);
    return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

// Returns the commands that the page of PATH refers to: the one above and those directly below.
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

// Shows TEXT with the system's man. Returns false if there is none.
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

// Returns WORDS as the path of a command. Throws Error{kUsage} if there is no such command.
CommandPath named_command(const std::vector<std::string>& words) {
    CommandPath path;
    for (const std::string& word : words) {
        const HelpPage above = page_of(path);
        std::vector<std::string> names;
        for (const HelpEntry& entry : entries_of(above, "subcommands")) names.push_back(entry.head);
        if (std::ranges::count(names, word) == 0) {
            const auto near = nearest(word, names);
            fail(ExitCode::kUsage, "man: there is no command `dslaunch {}{}`{}",
                 path.empty() ? "" : join(path, " ") + " ", printable(word),
                 near ? fmt::format("; did you mean `{}`?", *near) : "");
        }
        path.push_back(word);
    }
    return path;
}

}  // namespace

int man_command(CommandWords arguments) {
    std::vector<std::string> command;
    std::string output;
    CommandLine app(
        {.does = "Shows the man page of a command, or writes the pages of all commands. If the "
                 "output is not a terminal, prints the page's source.",
         .examples = {"dslaunch man ckpt export", "dslaunch man run > dslaunch-run.1",
                      "dslaunch man --output /usr/local/share/man/man1"},
         .docs = "docs/reference/cli.md"},
        "dslaunch man");
    app.add("SUBCOMMAND", command,
            "the words of a command, such as ckpt export; default: dslaunch");
    app.add("--output DIR", output, "write the pages of all commands to this folder, as NAME.1");
    if (!app.parse({arguments.begin(), arguments.end()})) return 0;
    if (!output.empty()) {
        if (!command.empty())
            fail(ExitCode::kUsage, "man: --output writes the pages of all commands: leave `{}` out",
                 printable(join(command, " ")));
        write_all(output);
        return 0;
    }
    const CommandPath path = named_command(command);
    const std::string text = page_text(path, accepted_page_of(path), page_date());
    if (::isatty(STDOUT_FILENO) != 1 || !show(text)) fmt::print("{}", text);
    return 0;
}

}  // namespace dslaunch::launcher
