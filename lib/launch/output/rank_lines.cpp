#include "launch/output/rank_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/screen.h"
#include "base/text.h"
#include "base/text_bytes.h"

namespace dslaunch::launch {
namespace {

constexpr size_t kLastLines = 20;

}  // namespace

RankLines::RankLines(const JobSpec& spec, LinePrinter& printer, JobFiles& files, JobRecord* record)
    : spec_(spec), printer_(printer), files_(files), record_(record) {
    ranks_.resize(static_cast<size_t>(spec.world_size));
    for (const PlannedNode& node : spec.nodes) {
        for (const PlannedWorker& worker : node.workers)
            ranks_[worker.environment.rank].host = node.name;
    }
}

void RankLines::expect_failure_text(int rank, std::string_view message) {
    while (message.ends_with('\n')) message.remove_suffix(1);
    const std::vector<std::string> lines = split(message, '\n');
    ranks_.at(static_cast<size_t>(rank)).told_lines.assign(lines.begin(), lines.end());
}

// Returns true if LINE is a line of the failure message that RANK is expected to repeat. The
// message's first line may follow a log prefix.
bool RankLines::is_told(Rank& rank, std::string_view line) {
    if (rank.told_lines.empty()) return false;
    const std::string& told = rank.told_lines.front();
    if (line != told && !line.ends_with(": " + told)) return false;
    rank.told_lines.pop_front();
    return true;
}

std::string RankLines::prefix_of(int rank) const {
    return spec_.nodes.size() == 1
               ? fmt::format("[{}] ", rank)
               : fmt::format("[{}:{}] ", ranks_[static_cast<size_t>(rank)].host, rank);
}

void RankLines::remember(Rank& from, std::string_view line) {
    from.last_lines.push_back(printable(line));
    if (from.last_lines.size() > kLastLines) from.last_lines.pop_front();
}

void RankLines::add(int rank, OutputStream stream, std::string_view lines) {
    if (spec_.target_kind != TargetKind::kModel) return program_lines(rank, stream, lines);
    const bool is_result = stream == OutputStream::kStdout && rank == 0;
    if (!is_result) return model_lines(rank, lines, false);
    if (spec_.prints_results()) show_text(lines);
    model_lines(rank, result_lines_.add(lines), true);
}

// Shows BYTES, a part of the job's result that may begin and end anywhere.
void RankLines::show_text(std::string_view bytes) {
    if (!printer_.is_terminal(1)) return printer_.streams().write_text(1, bytes);
    const std::string text = std::exchange(letter_, {}) + std::string(bytes);
    const size_t shown = whole_characters(text);
    letter_ = text.substr(shown);
    std::string safe;
    for (size_t i = 0; i < shown;) {
        const size_t newline = std::min(text.find('\n', i), shown);
        safe += printable(std::string_view(text).substr(i, newline - i));
        if (newline < shown) safe += '\n';
        i = newline + 1;
    }
    printer_.streams().write_text(1, safe);
}

// Records whole LINES of a model's rank, and shows those that are not a part of the job's result.
// IS_RESULT: rank 0 wrote them on stdout.
void RankLines::model_lines(int rank, std::string_view lines, bool is_result) {
    if (lines.empty()) return;
    Rank& from = ranks_.at(static_cast<size_t>(rank));
    files_.rank_lines(rank, lines);
    if (record_ != nullptr) record_->lines(rank, from.host, lines);
    while (!lines.empty()) {
        const size_t newline = std::min(lines.find('\n'), lines.size());
        std::string_view line = lines.substr(0, newline);
        lines.remove_prefix(std::min(newline + 1, lines.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (is_told(from, line)) continue;
        const auto logged = is_result ? std::nullopt : read_logged(line);
        if (logged && logged->level == LogLevel::kDetail && !spec_.log.shows_details()) continue;
        remember(from, line);
        if (is_result && spec_.prints_results()) continue;  // show_text() has shown it
        if (is_result) {
            printer_.print(
                1, fitted(printer_.is_terminal(1) ? printable(line) : std::string(line), 1));
        } else {
            show_line(rank, line, logged);
        }
    }
}

// Shows LINE. On a terminal a log line is shown without its time, and without its rank if there is
// only one rank.
void RankLines::show_line(int rank, std::string_view line,
                          const std::optional<LoggedLine>& logged) {
    std::string text = prefix_of(rank);
    if (!printer_.is_terminal(2) || !logged || spec_.log.shows_details())
        return printer_.print(2, fitted(text + printable(line), 2));
    if (spec_.world_size == 1) text.clear();
    const size_t begin = text.size();
    std::string_view word;
    if (logged->level == LogLevel::kWarn) word = "warning:";
    if (logged->level == LogLevel::kError) word = "error:";
    text += fmt::format("{}{}{}", word, word.empty() ? "" : " ", printable(logged->said));
    text = fitted(text, 2);
    if (!word.empty() && printer_.has_colours()) {
        text.insert(begin + word.size(), "\x1b[0m");
        text.insert(begin, word == "error:" ? "\x1b[1;31m" : "\x1b[33m");
    }
    printer_.print(2, text);
}

// Writes a rank's bytes to its log file without changing them. If a line of the other stream is
// incomplete, a newline ends it first.
void RankLines::file_bytes(int rank, OutputStream stream, std::string_view bytes) {
    Rank& from = ranks_.at(static_cast<size_t>(rank));
    const bool cuts_in = from.in_file && from.in_file != stream;
    files_.rank_lines(rank, cuts_in ? "\n" + std::string(bytes) : std::string(bytes));
    if (bytes.ends_with('\n')) {
        from.in_file.reset();
    } else {
        from.in_file = stream;
    }
}

void RankLines::program_lines(int rank, OutputStream stream, std::string_view bytes) {
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
        printer_.streams().write_line(fd, owner, prefix + printable(text) + "\n");
    };
    const auto piece = [&](std::string_view text) {
        printer_.streams().write_piece(fd, owner,
                                       printer_.cut_to_width(fd, prefix + printable(text)));
    };
    from.pieces[fd - 1].add(bytes, line, piece);
}

const std::deque<std::string>& RankLines::last_lines(int rank) const {
    return ranks_.at(static_cast<size_t>(rank)).last_lines;
}

}  // namespace dslaunch::launch
