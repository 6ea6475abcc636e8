#include "launch/supervise/job_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/paint.h"
#include "base/text.h"
#include "base/text/columns.h"
#include "base/text/json.h"
#include "launch/plan/environment_report.h"
#include "launch/plan/secrets.h"

namespace dslaunch::launch {
namespace {

constexpr size_t kLastLines = 20;

constexpr size_t kFurtherLinesIndent = 4;  // of a line that is broken at a terminal's width

// LINE without the last of its fields, which two blanks part, until it has COLUMNS at most.
std::string shortened(std::string line, size_t columns) {
    while (columns_of(line) > columns) {
        const size_t end = line.rfind("  ");
        if (end == std::string::npos) break;
        line.erase(end);
    }
    return line;
}

}  // namespace

JobOutput::JobOutput(const JobSpec& spec, StandardStreams& streams, JobFiles& files,
                     JobRecord* record)
    : spec_(spec),
      streams_(streams),
      files_(files),
      record_(record),
      stderr_is_terminal_(::isatty(2) == 1),
      stdout_is_terminal_(::isatty(1) == 1),
      has_colours_(takes_colours(2)) {
    ranks_.resize(static_cast<size_t>(spec.world_size));
    for (const PlannedNode& node : spec.nodes) {
        for (const PlannedWorker& worker : node.workers) {
            ranks_[worker.environment.rank].host = node.name;
        }
    }
    files_.open_ranks(spec.world_size);
}

void JobOutput::note(std::string_view line) {
    if (record_ != nullptr) record_->note(line);
    std::string text;
    for (const std::string& one : split(line, '\n')) text += fitted(one) + "\n";
    print(2, has_colours_ ? painted(std::move(text)) : text);
}

// LINE, of ours, as lines that fit the terminal at stderr.
std::string JobOutput::fitted(std::string_view line) const {
    const size_t columns = stderr_is_terminal_ ? terminal_columns(2) : 0;
    if (columns <= kFurtherLinesIndent || columns_of(line) <= columns) return std::string(line);
    return wrapped(line, {.width = columns, .indent = kFurtherLinesIndent});
}

void JobOutput::mark_logs(std::string_view line) {
    files_.mark_logs(line);
}

void JobOutput::tell_news() {
    if (const std::string news = files_.take_news(); !news.empty()) note(news);
    if (record_ != nullptr) record_->tell_news();
}

void JobOutput::expect_failure_text(int rank, std::string_view message) {
    while (message.ends_with('\n')) message.remove_suffix(1);
    const std::vector<std::string> lines = split(message, '\n');
    ranks_.at(static_cast<size_t>(rank)).told_lines.assign(lines.begin(), lines.end());
}

// The first line of a message follows the log's prefix, the others stand alone.
bool JobOutput::is_told(Rank& rank, std::string_view line) {
    if (rank.told_lines.empty()) return false;
    const std::string& told = rank.told_lines.front();
    if (line != told && !line.ends_with(": " + told)) return false;
    rank.told_lines.pop_front();
    return true;
}

void JobOutput::lines(int rank, OutputStream stream, std::string_view lines) {
    Rank& from = ranks_.at(static_cast<size_t>(rank));
    files_.rank_lines(rank, lines);
    if (record_ != nullptr) record_->lines(rank, from.host, lines);
    const bool is_stdout = stream == OutputStream::kStdout;
    const bool is_training = spec_.target_kind == TargetKind::kModel;
    const bool is_result = is_training && is_stdout && rank == 0;
    const std::string prefix = spec_.nodes.size() == 1 ? fmt::format("[{}] ", rank)
                                                       : fmt::format("[{}:{}] ", from.host, rank);
    while (!lines.empty()) {
        const size_t newline = std::min(lines.find('\n'), lines.size());
        std::string_view line = lines.substr(0, newline);
        lines.remove_prefix(std::min(newline + 1, lines.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (is_told(from, line)) continue;
        from.last_lines.push_back(printable(line));
        if (from.last_lines.size() > kLastLines) from.last_lines.pop_front();
        if (is_result) {
            print(1, (stdout_is_terminal_ ? printable(line) : std::string(line)) + "\n");
        } else {
            const std::string text = prefix + printable(line);
            print(is_stdout && !is_training ? 1 : 2, (is_training ? fitted(text) : text) + "\n");
        }
    }
}

bool JobOutput::is_lost() {
    if (!streams_.reader_is_gone(1)) return false;
    if (spec_.prints_results()) return true;
    if (!std::exchange(told_of_loss_, true)) {
        note(
            "dslaunch: nobody reads this output any more; the job goes on, and what rank 0 prints "
            "is not shown");
    }
    return false;
}

void JobOutput::metrics(std::string_view line) {
    files_.metrics(line);
    if (record_ != nullptr) record_->metrics(line);
}

void JobOutput::progress(std::string_view line) {
    if (spec_.log.quiet) return;
    // A terminal that stands still has no use for each of them.
    if (stderr_is_terminal_ && streams_.has_kept()) return;
    const size_t columns = stderr_is_terminal_ ? terminal_columns(2) : 0;
    note(columns > 0 ? shortened(printable(line), columns) : printable(line));
}

void JobOutput::add_node(const AgentHello& hello, const std::string& name,
                         const MachineFacts* facts) {
    nodes_.push_back(hello);
    machines_.push_back(facts == nullptr ? std::nullopt : std::optional(*facts));
    node_names_.push_back(name);
}

void JobOutput::add_rank(const WorkerStarted& started) {
    ranks_.at(static_cast<size_t>(started.rank)).started = started;
}

void JobOutput::print_environments() {
    std::vector<RankVariables> got;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        if (ranks_[rank].started.pid == 0) continue;
        got.push_back(
            {static_cast<int>(rank), ranks_[rank].host, ranks_[rank].started.environment});
    }
    std::string text = describe_environments(got);
    text.pop_back();
    note(text);
}

void JobOutput::write_run_file(int exit_code) {
    if (spec_.output_directory.empty()) return;
    JsonWriter json;
    json.begin_object();
    json.field("dslaunch", DSL_VERSION).field("job_id", spec_.job_id);
    json.field("target", spec_.target).field("working_directory", spec_.working_directory);
    json.field("world_size", spec_.world_size).field("restarts", restarts_);
    json.key("exit_code");
    exit_code < 0 ? json.null() : json.value(exit_code);
    json.key("nodes").begin_array();
    for (size_t i = 0; i < nodes_.size(); ++i) {
        json.begin_object().field("name", node_names_[i]).field("host_name", nodes_[i].host_name);
        json.field("version", nodes_[i].version).field("binary_sha256", nodes_[i].binary_hash);
        json.field("kernel", nodes_[i].kernel).field("cores", nodes_[i].cores);
        json.field("gpus", nodes_[i].gpus);
        if (machines_[i]) json.key("machine").raw(machine_json(*machines_[i]));
        json.end_object();
    }
    json.end_array().key("ranks").begin_array();
    for (const PlannedNode& node : spec_.nodes) {
        for (const PlannedWorker& worker : node.workers) {
            const Rank& rank = ranks_.at(static_cast<size_t>(worker.environment.rank));
            json.begin_object().field("rank", worker.environment.rank).field("host", node.name);
            json.field("pid", rank.started.pid).key("command").begin_array();
            for (const std::string& word : hide_in_command(worker.command)) json.value(word);
            json.end_array().key("environment").begin_object();
            for (const auto& [name, value] : rank.started.environment) {
                json.field(name, is_shown_in_files(name) ? shown_value(name, value)
                                                         : std::string(kHiddenValue));
            }
            json.end_object().end_object();
        }
    }
    json.end_array().key("run");
    run_info_.empty() ? json.null() : json.raw(run_info_);
    json.end_object();
    files_.run_file(json.text() + "\n");
}

const std::deque<std::string>& JobOutput::last_lines(int rank) const {
    return ranks_.at(static_cast<size_t>(rank)).last_lines;
}

}  // namespace dslaunch::launch
