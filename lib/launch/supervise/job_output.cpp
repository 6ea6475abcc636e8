#include "launch/supervise/job_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/json.h"
#include "launch/plan/environment_file.h"
#include "launch/plan/secrets.h"

namespace dslaunch::launch {
namespace {

constexpr size_t kLastLines = 20;

using Value = std::optional<std::string>;  // nullopt: not set

struct Holders {
    std::vector<std::string> hosts;  // each once, in the order of ranks
    std::vector<std::string> ranks;
};

// Groups the ranks by their value, with values in the order of the first rank that has them.
std::vector<std::pair<Value, Holders>> holders_of(
    const std::string& name, std::span<const RankVariables> ranks,
    const std::vector<std::map<std::string, std::string>>& values) {
    std::vector<std::pair<Value, Holders>> groups;
    for (size_t i = 0; i < ranks.size(); ++i) {
        const auto found = values[i].find(name);
        const Value value = found == values[i].end() ? Value() : Value(found->second);
        auto group = std::find_if(groups.begin(), groups.end(),
                                  [&](const auto& known) { return known.first == value; });
        if (group == groups.end()) group = groups.insert(groups.end(), {value, {}});
        Holders& holders = group->second;
        holders.ranks.push_back(std::to_string(ranks[i].rank));
        if (holders.hosts.empty() || holders.hosts.back() != ranks[i].host)
            holders.hosts.push_back(ranks[i].host);
    }
    return groups;
}

std::string value_text(const std::string& name, const Value& value) {
    if (!value) return "(not set)";
    return printable(shown_value(name, *value));
}

// Returns true when no host has two of the values.
bool differs_by_host(const std::vector<std::pair<Value, Holders>>& groups) {
    std::vector<std::string> seen;
    for (const auto& [value, holders] : groups) {
        for (const std::string& host : holders.hosts) {
            if (std::find(seen.begin(), seen.end(), host) != seen.end()) return false;
            seen.push_back(host);
        }
    }
    return true;
}

}  // namespace

JobOutput::JobOutput(const JobSpec& spec, StandardStreams& streams, JobFiles& files,
                     JobRecord* record, const Clock* clock)
    : spec_(spec),
      streams_(streams),
      files_(files),
      record_(record),
      stderr_is_terminal_(::isatty(2) == 1),
      stdout_is_terminal_(::isatty(1) == 1),
      has_colours_(takes_colours(2)),
      clock_(clock != nullptr ? *clock : system_clock_),
      told_at_(clock_.now()) {
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
    std::string text = fitted(line, 2) + "\n";
    print(2, has_colours_ ? painted(std::move(text)) : text);
}

void JobOutput::detail(std::string_view line) {
    mark_logs(line);
    if (shows_details()) return note(line);
    if (record_ != nullptr) record_->note(line);
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

// Returns true if LINE is one of a failure's message. Its first line follows the log's prefix.
bool JobOutput::is_told(Rank& rank, std::string_view line) {
    if (rank.told_lines.empty()) return false;
    const std::string& told = rank.told_lines.front();
    if (line != told && !line.ends_with(": " + told)) return false;
    rank.told_lines.pop_front();
    return true;
}

std::string JobOutput::prefix_of(int rank) const {
    return spec_.nodes.size() == 1
               ? fmt::format("[{}] ", rank)
               : fmt::format("[{}:{}] ", ranks_[static_cast<size_t>(rank)].host, rank);
}

void JobOutput::remember(Rank& from, std::string_view line) {
    from.last_lines.push_back(printable(line));
    if (from.last_lines.size() > kLastLines) from.last_lines.pop_front();
}

// Cuts TEXT to the columns of a terminal at FD: a piece that is broken there cannot be replaced.
std::string JobOutput::cut_to(int fd, std::string text) const {
    const bool is_terminal = fd == 1 ? stdout_is_terminal_ : stderr_is_terminal_;
    const size_t columns = is_terminal ? terminal_columns(fd) : 0;
    return columns == 0 ? text : first_columns(text, columns - 1);
}

void JobOutput::lines(int rank, OutputStream stream, std::string_view lines) {
    Rank& from = ranks_.at(static_cast<size_t>(rank));
    if (spec_.target_kind != TargetKind::kModel) return program_lines(rank, stream, lines);
    files_.rank_lines(rank, lines);
    if (record_ != nullptr) record_->lines(rank, from.host, lines);
    const bool is_result = stream == OutputStream::kStdout && rank == 0;
    while (!lines.empty()) {
        const size_t newline = std::min(lines.find('\n'), lines.size());
        std::string_view line = lines.substr(0, newline);
        lines.remove_prefix(std::min(newline + 1, lines.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (is_told(from, line)) continue;
        const auto logged = is_result ? std::nullopt : read_logged(line);
        if (logged && logged->level == LogLevel::kDetail && !shows_details()) continue;
        remember(from, line);
        if (is_result) {
            std::string text = stdout_is_terminal_ ? printable(line) : std::string(line);
            if (!spec_.prints_results()) text = fitted(text, 1);
            print(1, text + "\n");
        } else {
            show_line(rank, line, logged);
        }
    }
}

// Shows LINE; on a terminal a log line has no time, and no rank if there is only one.
void JobOutput::show_line(int rank, std::string_view line,
                          const std::optional<LoggedLine>& logged) {
    std::string text = prefix_of(rank);
    if (!stderr_is_terminal_ || !logged || shows_details())
        return print(2, fitted(text + printable(line), 2) + "\n");
    if (spec_.world_size == 1) text.clear();
    const size_t begin = text.size();
    std::string_view word;
    if (logged->level == LogLevel::kWarn) word = "warning:";
    if (logged->level == LogLevel::kError) word = "error:";
    text += fmt::format("{}{}{}", word, word.empty() ? "" : " ", printable(logged->said));
    text = fitted(text, 2);
    if (!word.empty() && has_colours_) {
        text.insert(begin + word.size(), "\x1b[0m");
        text.insert(begin, word == "error:" ? "\x1b[1;31m" : "\x1b[33m");
    }
    print(2, text + "\n");
}

// Writes a rank's bytes unchanged to its log file, each line of a stream by itself.
void JobOutput::file_bytes(int rank, OutputStream stream, std::string_view bytes) {
    Rank& from = ranks_.at(static_cast<size_t>(rank));
    const bool cuts_in = from.in_file && from.in_file != stream;
    files_.rank_lines(rank, cuts_in ? "\n" + std::string(bytes) : std::string(bytes));
    if (bytes.ends_with('\n')) {
        from.in_file.reset();
    } else {
        from.in_file = stream;
    }
}

void JobOutput::program_lines(int rank, OutputStream stream, std::string_view bytes) {
    if (bytes.empty()) return;
    Rank& from = ranks_.at(static_cast<size_t>(rank));
    const int fd = stream == OutputStream::kStdout ? 1 : 2;
    const int owner = 2 * rank + fd - 1;
    file_bytes(rank, stream, bytes);
    const std::string prefix = prefix_of(rank);
    const auto line = [&](std::string_view text) {
        if (record_ != nullptr) record_->lines(rank, from.host, std::string(text) + "\n");
        if (is_told(from, text)) return;
        remember(from, text);
        streams_.write_line(fd, owner, prefix + printable(text) + "\n");
    };
    const auto piece = [&](std::string_view text) {
        streams_.write_piece(fd, owner, cut_to(fd, prefix + printable(text)));
    };
    from.pieces[fd - 1].add(bytes, line, piece);
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
    constexpr std::string_view kStep = "{\"step\": ";
    if (line.starts_with(kStep))
        newest_step_ = parse_int(line.substr(kStep.size(), line.find(',') - kStep.size()))
                           .value_or(newest_step_);
    files_.metrics(line);
    if (record_ != nullptr) record_->metrics(line);
}

void JobOutput::progress(std::string_view line) {
    if (spec_.log.quiet) return;
    told_at_ = clock_.now();
    // A terminal that stands still does not need all of them.
    if (stderr_is_terminal_ && streams_.has_kept()) return;
    const size_t columns = stderr_is_terminal_ ? terminal_columns(2) : 0;
    note(columns > 0 ? without_last_fields(printable(line), columns) : printable(line));
}

void JobOutput::begin_work(std::string_view what) {
    work_ = what;
    work_began_ = clock_.now();
    rank_progress_.clear();
    tell_progress();
}

void JobOutput::tell_progress() {
    if (spec_.log.quiet || spec_.target_kind != TargetKind::kModel) return;
    const TimePoint now = clock_.now();
    const Duration worked = now - work_began_;
    std::string text = printable(rank_progress_);
    if (text.empty() && !work_.empty() && worked >= kShownAfter)
        text = fmt::format("{}  {}", work_, time_text(to_milliseconds(worked) / 1e3));
    if (streams_.moves()) {
        if (text == moving_) return streams_.show_moving_again();
        moving_ = text;
        told_at_ = now;
        return streams_.show_moving(text);
    }
    if (!std::exchange(moving_, {}).empty()) streams_.show_moving({});  // it was the foreground
    if (text.empty() || now - told_at_ < kToldEach) return;
    told_at_ = now;
    note(text);
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

std::string describe_environments(std::span<const RankVariables> ranks) {
    std::vector<std::map<std::string, std::string>> values;
    std::map<std::string, bool> names;
    for (const RankVariables& rank : ranks) {
        values.emplace_back(rank.variables.begin(), rank.variables.end());
        for (const auto& [name, value] : rank.variables) names[name] = true;
    }
    std::string common, different;
    std::vector<std::string> own;
    for (const auto& [name, unused] : names) {
        const auto groups = holders_of(name, ranks, values);
        const std::string shown = printable(name);
        if (groups.size() == 1) {
            common += fmt::format("  {}={}\n", shown, value_text(name, groups.front().first));
            continue;
        }
        if (is_rank_variable(name)) {
            own.push_back(shown);
            continue;
        }
        const bool by_host = differs_by_host(groups);
        for (const auto& [value, holders] : groups) {
            different += fmt::format(
                "  {}={}  on {}\n", shown, value_text(name, value),
                by_host ? join(holders.hosts, ", ") : "ranks " + join(holders.ranks, ", "));
        }
    }
    std::string text = fmt::format(
        "dslaunch: environment of {}:\n{}",
        ranks.size() == 1 ? "the rank" : fmt::format("all {} ranks", ranks.size()), common);
    if (!own.empty()) text += "each rank has its own: " + join(own, " ") + "\n";
    text +=
        different.empty() ? "nothing else differs between hosts\n" : "these differ:\n" + different;
    return text;
}

}  // namespace dslaunch::launch
