#include "launch/supervise/failure_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "base/error.h"
#include "base/text.h"
#include "launch/process/spawn.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

// The largest number of ranks that are listed individually; if there are more, they are grouped.
constexpr size_t kSingleRanksMax = 16;
constexpr size_t kOtherMessagesMax = 4;
constexpr std::string_view kSettingUp = "setting up";  // position in a heartbeat before the first
                                                       // step

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
        fmt::format("  rank {} on host {} (pid {}) is behind", rank.rank, rank.host, rank.pid);
    if (!rank.heartbeat) return text + ": it has sent no heartbeat since it started\n";
    if (behind->silence > kHeartbeatSilenceMax)
        text += fmt::format(", and has sent no heartbeat for {:.1f} s", behind->silence.count());
    return text + fmt::format(
                      ": {}; it has done {} instructions, and the other ranks have done {} to {}\n",
                      printable(rank.heartbeat->where), rank.heartbeat->instructions_done, least,
                      most);
}

// Returns true if the rank was killed from outside and nothing shows by whom.
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
    if (!record.failed()) text += ", while the other ranks still needed it";
    text += "\n";
    if (is_killed_from_outside(record))
        text +=
            "  SIGKILL was sent from outside: by the kernel when memory ran out (check with `dmesg "
            "| grep -i oom`), by a scheduler at a limit, or by kill -9\n";
    if (record.failure) text += "  it says: " + printable_lines(record.failure->message, 4) + "\n";
    if (is_hang(record)) text += describe_behind(ranks);
    // The failure message also names the rank's position, and the last heartbeat may be a second
    // older. Therefore the position in the heartbeat is shown only after a hang or if there is no
    // failure message.
    if (record.heartbeat && (!record.failure || is_hang(record)))
        text += "  it was at: " + printable(record.heartbeat->where) + "\n";
    // If the rank has a failure message, its last lines add little.
    const bool shows_lines = !record.failure && !last_lines.empty();
    if (shows_lines) text += "  its last lines:\n";
    for (const std::string& line : last_lines)
        if (shows_lines) text += "    " + line + "\n";
    text += other_messages(ranks, culprit);
    if (!log.empty()) text += "  log: " + printable(log) + "\n";
    if (ranks.size() == 1) return text;
    return text + "all ranks:\n" + describe_ranks(ranks);
}

}  // namespace dslaunch::launch
