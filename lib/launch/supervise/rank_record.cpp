#include "launch/supervise/rank_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "launch/process/spawn.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

// Returns true if the rank ended by a signal of ours, or because it heeded one.
bool ended_on_request(const RankRecord& record) {
    return record.told_to_end && !(record.failure && !record.only_lost_a_peer());
}

// The most ranks that are listed singly; more are grouped.
constexpr size_t kSingleRanksMax = 16;
constexpr size_t kOtherMessagesMax = 4;
constexpr std::string_view kSettingUp = "setting up";  // a heartbeat before the first step

// Returns true if LINE is a line of MESSAGE, perhaps after the prefix of a log line.
bool repeats(std::string_view line, std::string_view message) {
    const std::vector<std::string> told = split(message, '\n');
    return std::any_of(told.begin(), told.end(), [&](const std::string& one) {
        return !one.empty() && (line == one || line.ends_with(": " + one));
    });
}

bool is_hang(const RankRecord& record) {
    return record.failure && record.failure->code == static_cast<uint32_t>(ExitCode::kHang);
}

std::string describe_behind(const std::vector<RankRecord>& ranks) {
    const auto behind = find_behind(ranks);
    if (!behind) return {};
    const RankRecord& rank = ranks[behind->index];
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < ranks.size(); ++i) {
        if (i == behind->index || !ranks[i].heartbeat) continue;
        least = std::min(least, ranks[i].heartbeat->instructions_done);
        most = std::max(most, ranks[i].heartbeat->instructions_done);
    }
    std::string text =
        fmt::format("  behind is rank {} on host {} (pid {})", rank.rank, rank.host, rank.pid);
    if (!rank.heartbeat) return text + ": nothing was heard of it since its start\n";
    if (behind->silence > kHeartbeatSilenceMax)
        text += fmt::format(", silent for {:.1f} s", behind->silence.count());
    return text + fmt::format(": {}; {} instructions done, the others {} to {}\n",
                              printable(rank.heartbeat->where), rank.heartbeat->instructions_done,
                              least, most);
}

// Returns true if somebody ended the rank, and no facts say who.
bool is_killed_from_outside(const RankRecord& record) {
    return record.exited.signal_number == SIGKILL && !record.told_to_end &&
           record.exited.oom_evidence.empty();
}

std::string other_messages(const std::vector<RankRecord>& ranks, size_t culprit) {
    std::string text;
    std::vector<std::string> told;
    if (ranks[culprit].failure) told.push_back(ranks[culprit].failure->message);
    for (size_t i = 0; i < ranks.size() && told.size() <= kOtherMessagesMax; ++i) {
        const RankRecord& rank = ranks[i];
        if (i == culprit || !rank.failure || rank.only_lost_a_peer()) continue;
        if (std::find(told.begin(), told.end(), rank.failure->message) != told.end()) continue;
        told.push_back(rank.failure->message);
        text += fmt::format("  rank {} says: {}\n", rank.rank,
                            printable_lines(rank.failure->message, 4));
    }
    return text;
}

}  // namespace

bool RankRecord::only_lost_a_peer() const {
    const auto lost = static_cast<uint32_t>(ExitCode::kPeerLost);
    if (failure) return failure->code == lost;
    return exited.signal_number == 0 && exited.exit_status == static_cast<int>(lost);
}

std::optional<size_t> find_culprit(TargetKind kind, const std::vector<RankRecord>& ranks) {
    std::optional<size_t> culprit;
    const auto weight = [&](size_t i) {
        return std::make_tuple(ended_on_request(ranks[i]), ranks[i].only_lost_a_peer(),
                               ranks[i].order);
    };
    for (size_t i = 0; i < ranks.size(); ++i) {
        if (!ranks[i].failed()) continue;
        if (!culprit || weight(i) < weight(*culprit)) culprit = i;
    }
    if (!culprit || kind != TargetKind::kModel || !ranks[*culprit].only_lost_a_peer())
        return culprit;
    // Ends on several hosts are not heard of in their order.
    std::optional<size_t> left;
    for (size_t i = 0; i < ranks.size(); ++i) {
        const RankRecord& rank = ranks[i];
        if (!rank.ended || rank.failed() || rank.told_to_end) continue;
        if (!left || rank.order < ranks[*left].order) left = i;
    }
    return left ? left : culprit;
}

std::optional<BehindRank> find_behind(const std::vector<RankRecord>& ranks) {
    const RankRecord* newest = nullptr;
    double steps_most = 0;
    for (const RankRecord& rank : ranks) {
        if (!rank.heartbeat) continue;
        if (newest == nullptr || rank.heard_at > newest->heard_at) newest = &rank;
        steps_most = std::max(steps_most, rank.heartbeat->steps_done());
    }
    if (newest == nullptr) return std::nullopt;
    std::optional<BehindRank> behind;
    using Seconds = std::chrono::duration<double>;
    const auto silence_of = [&](const RankRecord& rank) {
        // A rank without heartbeat stands still since its start.
        return rank.heartbeat ? Seconds(newest->heard_at - rank.heard_at) : Seconds::max();
    };
    const auto key = [&](const RankRecord& rank) {
        return std::make_tuple(silence_of(rank) <= kHeartbeatSilenceMax,
                               rank.heartbeat ? rank.heartbeat->steps_done() : -1.0);
    };
    for (size_t i = 0; i < ranks.size(); ++i) {
        const RankRecord& rank = ranks[i];
        if (!rank.heartbeat && (!rank.started || (rank.ended && !rank.told_to_end))) continue;
        if (std::get<0>(key(rank)) && std::get<1>(key(rank)) >= steps_most) continue;
        if (!behind || key(rank) < key(ranks[behind->index]))
            behind = BehindRank{i, silence_of(rank)};
    }
    return behind;
}

int job_exit_code(TargetKind kind, const std::vector<RankRecord>& ranks) {
    const auto culprit = find_culprit(kind, ranks);
    if (!culprit) return static_cast<int>(ExitCode::kOk);
    const RankRecord& record = ranks[*culprit];
    if (kind != TargetKind::kModel) {
        return record.exited.signal_number != 0
                   ? 128 + static_cast<int>(record.exited.signal_number)
                   : static_cast<int>(record.exited.exit_status);
    }
    if (record.failure && is_own_code(record.failure->code)) {
        return static_cast<int>(record.failure->code);
    }
    const auto status = static_cast<uint32_t>(record.exited.exit_status);
    if (record.exited.signal_number == 0 && is_own_code(status)) return static_cast<int>(status);
    return static_cast<int>(ExitCode::kRankFailed);
}

void StragglerWatch::mark(const std::vector<RankRecord>& ranks) {
    marks_.clear();
    for (const RankRecord& rank : ranks) {
        marks_.push_back({rank.heartbeat->steps_done(), rank.heartbeat->lanes, rank.heard_at});
    }
}

std::optional<std::string> StragglerWatch::compare(const std::vector<RankRecord>& ranks) const {
    struct Worst {
        size_t rank = 0;
        std::string lane;
        double ms = 0, median_ms = 0;
    };
    std::optional<Worst> worst;
    for (size_t lane = 0; lane < marks_.front().lanes.size(); ++lane) {
        std::vector<double> times_ms;  // times of a step, by rank
        for (size_t i = 0; i < ranks.size(); ++i) {
            if (lane >= marks_[i].lanes.size() || lane >= ranks[i].heartbeat->lanes.size())
                return std::nullopt;
            const auto busy = ranks[i].heartbeat->lanes[lane].busy - marks_[i].lanes[lane].busy;
            const double steps = ranks[i].heartbeat->steps_done() - marks_[i].steps;
            times_ms.push_back(std::chrono::duration<double, std::milli>(busy).count() / steps);
        }
        const auto most = std::max_element(times_ms.begin(), times_ms.end());
        std::vector<double> sorted = times_ms;
        std::sort(sorted.begin(), sorted.end());
        const double median = sorted[(sorted.size() - 1) / 2];
        const Worst found{static_cast<size_t>(most - times_ms.begin()),
                          marks_.front().lanes[lane].lane, *most, median};
        if (!worst || found.ms - found.median_ms > worst->ms - worst->median_ms) worst = found;
    }
    if (!worst) return std::nullopt;
    const RankRecord& rank = ranks[worst->rank];
    const Mark& before = marks_[worst->rank];
    const double steps = rank.heartbeat->steps_done() - before.steps;
    const double step_ms =
        std::chrono::duration<double, std::milli>(rank.heard_at - before.at).count() / steps;
    const double excess_ms = worst->ms - worst->median_ms;
    if (excess_ms < kStragglerShareMin * worst->median_ms ||
        excess_ms < kStragglerStepShareMin * step_ms) {
        return std::nullopt;
    }
    return fmt::format(
        "dslaunch: straggler: rank {} on {} works {:.1f} ms a step in its {} lane, the median rank "
        "{:.1f} ms: {:.0f} % more, {:.0f} % of the step (over {:.0f} steps)",
        rank.rank, rank.host, worst->ms, worst->lane, worst->median_ms,
        100.0 * excess_ms / std::max(worst->median_ms, 1e-3), 100.0 * excess_ms / step_ms, steps);
}

std::optional<std::string> StragglerWatch::look(const std::vector<RankRecord>& ranks) {
    const bool measured = std::all_of(ranks.begin(), ranks.end(), [](const RankRecord& rank) {
        return rank.heartbeat && !rank.heartbeat->lanes.empty();
    });
    if (interval_steps_ <= 0 || ranks.size() < 2 || !measured) return std::nullopt;
    // A rank that starts again counts its steps from 0.
    for (size_t i = 0; i < marks_.size(); ++i) {
        if (ranks[i].heartbeat->steps_done() < marks_[i].steps) marks_.clear();
    }
    if (marks_.empty()) {
        mark(ranks);
        return std::nullopt;
    }
    for (size_t i = 0; i < ranks.size(); ++i) {
        const double steps = ranks[i].heartbeat->steps_done() - marks_[i].steps;
        if (steps < static_cast<double>(interval_steps_)) return std::nullopt;
    }
    const auto line = compare(ranks);
    mark(ranks);
    return line;
}

bool is_told_whole(const RankRecord& record) {
    if (!record.failure) return false;
    const auto code = static_cast<ExitCode>(record.failure->code);
    const bool is_mistake =
        code == ExitCode::kUsage || code == ExitCode::kConfig || code == ExitCode::kInput;
    const bool is_set_up = record.heartbeat && record.heartbeat->where == kSettingUp;
    const bool is_lack =
        code == ExitCode::kDisk || code == ExitCode::kSetup || code == ExitCode::kCheckpoint;
    return is_mistake || (is_lack && is_set_up);
}

std::string describe_end(const RankRecord& record) {
    if (!record.ended) return record.started ? "running" : "not started";
    if (!record.unknown_end.empty()) return record.unknown_end;
    const WorkerExited& exited = record.exited;
    if (!exited.start_error.empty()) return "could not start: " + printable(exited.start_error);
    std::string text;
    if (exited.signal_number != 0) {
        text = "killed by " + signal_text(static_cast<int>(exited.signal_number));
        if (exited.dumped_core) text += ", core dumped";
    } else {
        text = fmt::format("exit code {}", exited.exit_status);
        if (is_own_code(static_cast<uint32_t>(exited.exit_status))) {
            text += fmt::format(" ({})", exit_code_name(static_cast<ExitCode>(exited.exit_status)));
        }
    }
    if (record.told_to_end && record.failed()) text += ", ended by dslaunch";
    if (!exited.oom_evidence.empty()) text += "; " + exited.oom_evidence;
    return text;
}

std::string describe_ranks(const std::vector<RankRecord>& ranks) {
    size_t width = 4;
    for (const RankRecord& rank : ranks) width = std::max(width, rank.host.size());
    std::string text = fmt::format("  {:>5}  {:<{}}  {:>8}  end\n", "rank", "host", width, "pid");
    for (size_t i = 0; i < ranks.size();) {
        const RankRecord& rank = ranks[i];
        const std::string end = describe_end(rank);
        size_t next = i + 1;
        while (ranks.size() > kSingleRanksMax && next < ranks.size() &&
               ranks[next].host == rank.host && describe_end(ranks[next]) == end) {
            ++next;
        }
        const bool single = next == i + 1;
        text += fmt::format(
            "  {:>5}  {:<{}}  {:>8}  {}\n",
            single ? std::to_string(rank.rank) : fmt::format("{}-{}", rank.rank, next - 1),
            rank.host, width, single && rank.pid > 0 ? std::to_string(rank.pid) : "-", end);
        i = next;
    }
    return text;
}

std::string describe_failure(const std::vector<RankRecord>& ranks, size_t culprit,
                             const std::deque<std::string>& last_lines, const std::string& log) {
    const RankRecord& record = ranks[culprit];
    if (is_told_whole(record)) {
        const bool is_one_host = std::ranges::all_of(
            ranks, [&](const RankRecord& rank) { return rank.host == record.host; });
        return fmt::format(
                   "dslaunch: error: {}{}\n",
                   is_one_host ? "" : fmt::format("rank {} on host {}: ", record.rank, record.host),
                   printable_lines(record.failure->message, 2)) +
               other_messages(ranks, culprit);
    }
    std::string text = fmt::format("dslaunch: rank {} on host {} failed first: {}", record.rank,
                                   record.host, describe_end(record));
    if (record.pid > 0) text += fmt::format(" (pid {})", record.pid);
    if (!record.failed()) text += ", before the others, which still needed it, were done";
    text += "\n";
    if (is_killed_from_outside(record))
        text +=
            "  SIGKILL comes from outside: from the kernel where memory is short (`dmesg | grep -i "
            "oom` tells), a scheduler's limit, or kill -9\n";
    if (record.failure) text += "  it says: " + printable_lines(record.failure->message, 4) + "\n";
    if (is_hang(record)) text += describe_behind(ranks);
    // A message of its own says where; the last heartbeat may be a second older.
    if (record.heartbeat && (!record.failure || is_hang(record)))
        text += "  it was at: " + printable(record.heartbeat->where) + "\n";
    std::vector<std::string> lines;
    for (const std::string& line : last_lines) {
        if (!record.failure || !repeats(line, record.failure->message)) lines.push_back(line);
    }
    // Beside a message of its own the lines before it say little.
    if (record.failure) lines.clear();
    if (!lines.empty()) text += "  its last lines:\n";
    for (const std::string& line : lines) text += "    " + line + "\n";
    text += other_messages(ranks, culprit);
    if (!log.empty()) text += "  log: " + printable(log) + "\n";
    if (ranks.size() == 1) return text;
    return text + "all ranks:\n" + describe_ranks(ranks);
}

}  // namespace dslaunch::launch
