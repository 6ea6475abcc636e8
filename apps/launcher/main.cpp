// dslaunch: finds the subcommand, runs it, and turns an error into one message and an exit code.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/machine/files_of_process.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/help_page.h"
#include "launch/plan/join_token.h"
#include "launch/process/standard_streams.h"
#include "launcher/links/deepspeed_names.h"
#include "launcher/options/option_table.h"
#include "launcher/subcommands.h"
#include "storage/huggingface/named_place.h"

namespace dslaunch::launcher {
namespace {

[[noreturn]] void refuse_help_of(std::string word) {
    word.erase(0, std::min(word.find_first_not_of('-'), word.size()));
    storage::refuse_download(word, "");
    std::vector<std::string> names;
    for (const Subcommand& row : subcommands())
        if (row.is_offered) names.emplace_back(row.name);
    if (find_option_row("--" + word) != nullptr)
        fail(ExitCode::kUsage, "help: --{0} is an option of `run`: `dslaunch run --help` lists it",
             printable(word));
    const auto near = nearest(word, names);
    fail(ExitCode::kUsage, "help: `{}` is not a subcommand{}", printable(word),
         near ? fmt::format("; did you mean `{}`?", *near) : "; `dslaunch --help` lists them");
}

int dispatch(int argc, char** argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    // A link to this program may have the name of one of DeepSpeed's programs.
    words = meant_words(argv[0], std::move(words));
    if (words.empty() || words[0] == "--help" || words[0] == "-h" ||
        (words[0] == "help" && words.size() == 1)) {
        if (!words.empty()) {
            print_help(subcommands_page());
            return 0;
        }
        fmt::print(stderr, "{}", help_text(subcommands_page()));
        return static_cast<int>(ExitCode::kUsage);
    }
    // `help run` is `run --help`.
    if (words[0] == "help") {
        words.erase(words.begin());
        words.emplace_back("--help");
        if (find_subcommand(words[0]) == nullptr) refuse_help_of(words[0]);
    }
    if (words.size() == 1 && (words[0] == "-v" || words[0] == "-V" || words[0] == "version"))
        words[0] = "--version";
    if (words[0].starts_with("--") && find_option_row(words[0]) == nullptr) {
        const Subcommand* const meant = find_subcommand(std::string_view(words[0]).substr(2));
        if (meant != nullptr && meant->is_offered)
            fail(ExitCode::kUsage, "unknown option `{0}`: it is a subcommand: dslaunch {1}",
                 printable(words[0]), meant->name);
    }
    const Subcommand* row = find_subcommand(words[0]);
    // Without `run`, the first word is an option or a target.
    if (row == nullptr) row = find_subcommand("run");
    if (row->is_offered) set_log_as_messages();
    if (row->drops_token) static_cast<void>(launch::take_token_variable());
    return row->run(words);
}

void print_error(const char* message) {
    std::string line = fitted(fmt::format("dslaunch: error: {}", printable_lines(message, 0)), 2);
    // Does not wait for a reader that has stopped reading, so that this program always ends.
    launch::write_last_words((takes_colours(2) ? painted(std::move(line)) : line) + "\n");
}

}  // namespace
}  // namespace dslaunch::launcher

int main(int argc, char** argv) {
    // Opens standard descriptors that are closed. Otherwise the next file would get the number of a
    // closed descriptor: rank 0 would read the file as stdin, or lines for stdout and stderr would
    // be written into it. Writing to a closed descriptor fails as before, since the file is open
    // for reading only.
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (::fcntl(fd, F_GETFD) < 0)
            static_cast<void>(::open("/dev/null", O_RDONLY));  // gets FD, the lowest free number
    dslaunch::remove_files_at_signals();
    try {
        const int code = dslaunch::launcher::dispatch(argc, argv);
        // Results that could not be written are not a success.
        if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category());
        return code;
    } catch (const dslaunch::Error& error) {
        // print_error() makes control characters visible, because the message may quote names and
        // files that others chose.
        dslaunch::launcher::print_error(error.what());
        return static_cast<int>(error.code());
    } catch (const std::system_error& error) {
        // The reader of the output has stopped reading. Returns the exit code that a shell gives to
        // a program that SIGPIPE has ended.
        if (error.code() == std::errc::broken_pipe) return 128 + SIGPIPE;
        dslaunch::print_message(
            fmt::format("dslaunch: error: cannot write the output: {}", error.what()));
        return static_cast<int>(dslaunch::ExitCode::kDisk);
    } catch (const std::exception& error) {
        dslaunch::print_message(fmt::format("dslaunch: internal error: {}", error.what()));
        return static_cast<int>(dslaunch::ExitCode::kInternal);
    }
}
