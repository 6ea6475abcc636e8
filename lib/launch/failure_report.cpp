#include "launch/failure_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace dslaunch {

std::string describe_ranks(const std::vector<RankRecord>& ranks) {
    size_t width = 4;
    for (const RankRecord& rank : ranks) width = std::max(width, rank.host.size());
    std::string text = fmt::format("  {:>5}  {:<{}}  {:>8}  end\n", "rank", "host", width, "pid");
    for (const RankRecord& rank : ranks) {
        text += fmt::format("  {:>5}  {:<{}}  {:>8}  {}\n", rank.rank, rank.host, width,
                            rank.pid > 0 ? std::to_string(rank.pid) : "-", describe_end(rank));
    }
    return text;
}

std::string describe_failure(const std::vector<RankRecord>& ranks, size_t culprit,
                             const std::deque<std::string>& last_lines) {
    const RankRecord& record = ranks[culprit];
    std::string text = fmt::format("dslaunch: rank {} on host {} failed first: {}", record.rank,
                                   record.host, describe_end(record));
    if (record.pid > 0) text += fmt::format(" (pid {})", record.pid);
    text += "\n";
    if (record.failure) {
        // All problems of a config are one message of several lines.
        const char* lead = "  it says: ";
        for (const std::string& line : split(record.failure->message, '\n')) {
            text += lead + printable(line) + "\n";
            lead = "           ";
        }
    }
    if (!record.last_instruction.empty()) text += "  it was at: " + record.last_instruction + "\n";
    if (!last_lines.empty()) text += "  its last lines:\n";
    for (const std::string& line : last_lines) text += "    " + line + "\n";
    return text + "all ranks:\n" + describe_ranks(ranks);
}

}  // namespace dslaunch
