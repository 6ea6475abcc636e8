// `dslaunch logs JOB`: prints the output of a job's ranks from its record.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "base/text/json.h"
#include "launcher/jobs/file_lines.h"
#include "launcher/jobs/known_jobs.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {
namespace {

constexpr std::chrono::milliseconds kFollowInterval{200};

struct LogsArguments {
    std::string job;
    std::optional<int64_t> rank;
    bool follow = false;
    bool json = false;
};

struct LogLine {
    std::optional<int64_t> rank;  // nullopt: a line of the launcher
    std::string host;
    std::string text;
};

class LogPrinter {
  public:
    LogPrinter(const LogsArguments& arguments, const KnownJob& job)
        : arguments_(arguments), is_terminal_(::isatty(1) == 1), job_(job) {
        if (arguments.rank && (*arguments.rank < 0 || *arguments.rank >= job.world_size))
            fail(ExitCode::kUsage, "job {} has only the ranks 0 to {}", job.id, job.world_size - 1);
        older_.emplace(job.folder + "/job.log.1");
        newest_.emplace(job.folder + "/job.log");
        const bool is_cut = ::access((job.folder + "/job.log.1").c_str(), F_OK) == 0;
        if (is_cut && !job.output.empty())
            print_message(fmt::format("dslaunch: older output of the ranks is in {}/logs",
                                      printable(job.output)));
    }

    // The record contains the lines of all ranks and of the launcher in the order in which they
    // arrived.
    void print_new(bool end) {
        const auto record = [&](std::string_view line) { print(parse(line)); };
        if (older_) for_each_line(older_->read_new(true), record);
        older_.reset();
        for_each_line(newest_->read_new(end), record);
        std::fflush(stdout);
    }

  private:
    template <typename Function>
    static void for_each_line(std::string_view lines, Function&& function) {
        while (!lines.empty()) {
            const size_t newline = std::min(lines.find('\n'), lines.size());
            function(lines.substr(0, newline));
            lines.remove_prefix(std::min(newline + 1, lines.size()));
        }
    }

    // Parses a line RANK \t HOST \t TEXT. The launcher's lines have `-` for RANK.
    static LogLine parse(std::string_view line) {
        const size_t first = std::min(line.find('\t'), line.size());
        const size_t second = std::min(line.find('\t', first + 1), line.size());
        LogLine parsed;
        parsed.rank = parse_int(line.substr(0, first));
        if (first < second) parsed.host = std::string(line.substr(first + 1, second - first - 1));
        if (second < line.size()) parsed.text = std::string(line.substr(second + 1));
        return parsed;
    }

    static void print_fitted(const std::string& line) { fmt::print("{}\n", fitted(line, 1)); }

    void print(const LogLine& line) const {
        if (arguments_.rank && line.rank != arguments_.rank) return;
        if (arguments_.json) {
            JsonWriter json;
            json.begin_object().key("rank");
            line.rank ? json.value(*line.rank) : json.null();
            json.field("host", line.host).field("line", line.text).end_object();
            fmt::print("{}\n", json.text());
            return;
        }
        const std::string text = is_terminal_ ? printable(line.text) : line.text;
        if (!line.rank || arguments_.rank) {
            print_fitted(text);
        } else if (line.host.empty() || job_.hosts_in_use() == 1) {
            print_fitted(fmt::format("[{}] {}", *line.rank, text));
        } else {
            print_fitted(fmt::format("[{}:{}] {}", printable(line.host), *line.rank, text));
        }
    }

    const LogsArguments& arguments_;
    bool is_terminal_;
    KnownJob job_;
    std::optional<GrowingFile> older_, newest_;
};

int show_logs(const LogsArguments& arguments) {
    const std::string state = own_state_directory();
    KnownJob job = find_job(state, arguments.job);
    LogPrinter printer(arguments, job);
    while (arguments.follow && job.lives) {
        printer.print_new(false);
        std::this_thread::sleep_for(kFollowInterval);
        job = find_job(state, job.id);
    }
    printer.print_new(true);
    return 0;
}

}  // namespace

int logs_command(std::span<const std::string> arguments) {
    LogsArguments parsed;
    CommandLine app({.does = "Shows what the ranks of a job wrote.",
                     .examples = {"dslaunch logs 3f2a --rank 0 --follow"},
                     .docs = "docs/guide/jobs.md"},
                    "dslaunch logs");
    app.add("JOB", parsed.job, "the job's id, the first letters of its id, or its --output folder");
    app.add("--rank N", parsed.rank, "only this rank");
    app.add("-f,--follow", parsed.follow, "follow the output until the job ends");
    app.add("--json", parsed.json, "print one JSON object per line: rank, host, line");
    return app.parse({arguments.begin(), arguments.end()}) ? show_logs(parsed) : 0;
}

}  // namespace dslaunch::launcher
