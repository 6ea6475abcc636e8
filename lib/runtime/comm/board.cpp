#include "runtime/comm/board.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace dslaunch::runtime {
namespace {

// The first member waits until the time limit before it answers. The other members wait for its
// answer this much longer than the limit.
constexpr Duration kAnswerTime = std::chrono::seconds(2);

std::vector<int> count_members(Board& board, const Meeting& meeting) {
    const TimePoint deadline = SystemClock().now() + meeting.limit;
    std::vector<int> missing;
    std::string text;
    for (const int member : meeting.members) {
        if (member == meeting.self) continue;
        const Duration left =
            std::max<Duration>(deadline - SystemClock().now(), std::chrono::milliseconds(50));
        if (board.get(fmt::format("{}/{}", meeting.name, member), left)) continue;
        missing.push_back(member);
        text += fmt::format("{}{}", text.empty() ? "" : ",", member);
    }
    board.set(meeting.name + "/over", text);
    return missing;
}

}  // namespace

std::vector<int> meet(Board& board, const Meeting& meeting) {
    DSL_CHECK(!meeting.members.empty(), "the list of ranks that wait for each other is empty");
    const int first = meeting.members.front();
    if (meeting.self == first) return count_members(board, meeting);
    board.set(fmt::format("{}/{}", meeting.name, meeting.self), "1");
    const auto answer = board.get(meeting.name + "/over", meeting.limit + kAnswerTime);
    if (!answer) return {first};
    std::vector<int> missing;
    if (answer->empty()) return missing;
    for (const std::string& word : split(*answer, ','))
        missing.push_back(static_cast<int>(parse_int(word).value_or(first)));
    return missing;
}

}  // namespace dslaunch::runtime
