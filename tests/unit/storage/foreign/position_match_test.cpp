// Parameters without names, matched only by order and kind, in cases that can be followed by hand.
#include "storage/foreign/position_match.h"

#include <string>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::storage;

namespace {

// Matches positions with parameters. Each is one letter; `?` is a blank position.
PositionMatch match(const std::vector<std::string>& groups, const std::string& parameters) {
    std::vector<int64_t> group_positions;
    std::string positions;
    for (const std::string& group : groups) {
        group_positions.push_back(std::ssize(group));
        positions += group;
    }
    return match_positions(
        group_positions, std::ssize(parameters), [&](int64_t position, int64_t parameter) {
            const char wanted = positions[position];
            if (wanted == '?') return PositionFit::kBlank;
            return wanted == parameters[parameter] ? PositionFit::kYes : PositionFit::kNo;
        });
}

}  // namespace

TEST_CASE("Positions of an optimizer find their parameters where there is one way only") {
    using Found = std::vector<int64_t>;
    CHECK(match({"abc"}, "abc").parameters == Found{0, 1, 2});
    CHECK(match({"aaa"}, "aaa").parameters == Found{0, 1, 2});
    CHECK(match({"ac"}, "abc").parameters == Found{0, 2});
    // Groups of decayed parameters and others, each in the model's order.
    CHECK(match({"www", "bbb"}, "wbwbwb").parameters == Found{0, 2, 4, 1, 3, 5});
    CHECK(match({"wv", "b", "c"}, "bwcv").parameters == Found{1, 3, 0, 2});
    // Blank positions take whatever is left, and do not make one solution into two.
    CHECK(match({"?a?"}, "xay").parameters == Found{-1, 1, -1});
    CHECK(match({"?a", "?b"}, "xyab").parameters == Found{-1, 2, -1, 3});
    CHECK(match({}, "ab").parameters.empty());
    CHECK(match({}, "ab").fault.empty());
}

TEST_CASE("Positions that fit in two ways, or in none, are a fault and no guess") {
    CHECK(match({"a"}, "aa").fault.find("more than one way") != std::string::npos);
    CHECK(match({"a", "a"}, "aa").fault.find("more than one way") != std::string::npos);
    CHECK(match({"ab"}, "ba").fault.find("fits no position") != std::string::npos);
    CHECK(match({"aaa"}, "aa").fault.find("3 positions for only 2") != std::string::npos);
    const std::string many(200, 'a');
    CHECK(match({many.substr(100), many.substr(150)}, many).fault.find("ways") !=
          std::string::npos);
}
