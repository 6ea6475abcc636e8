#include "plan/choose/cut_choice.h"

#include <algorithm>

#include "support/catch.h"

namespace dslaunch {

using namespace plan;

namespace {

// Returns the places in LAYERS layers of ten nodes. Between layers one value is alive, inside them
// three.
std::vector<CutPlace> layered_places(int64_t layers, int64_t layer_numel) {
    std::vector<CutPlace> places;
    for (int64_t p = 1; p < layers * 10; ++p)
        places.push_back({p, p % 10 == 0 ? 1 : 3, (p + 5) / 10 * layer_numel});
    return places;
}

}  // namespace

TEST_CASE("without a wish the cuts fall between layers") {
    const std::vector<int64_t> cuts = choose_cuts(layered_places(12, 1000), 12'000, 0);
    REQUIRE(cuts.size() == 11);
    for (size_t i = 0; i < cuts.size(); ++i) CHECK(cuts[i] == static_cast<int64_t>(i + 1) * 10);
}

TEST_CASE("a wished number of segments is met whenever there are places enough") {
    const std::vector<CutPlace> places = layered_places(5, 100);
    for (int64_t segments = 1; segments <= 60; ++segments) {
        const std::vector<int64_t> cuts = choose_cuts(places, 500, segments);
        CHECK(static_cast<int64_t>(cuts.size()) == std::min<int64_t>(segments, 50) - 1);
        CHECK(std::is_sorted(cuts.begin(), cuts.end()));
        CHECK(std::adjacent_find(cuts.begin(), cuts.end()) == cuts.end());
    }
}

TEST_CASE("a model that cannot be cut is one segment") {
    CHECK(choose_cuts({}, 100, 0).empty());
    CHECK(choose_cuts({}, 100, 4).empty());
}

TEST_CASE("values that stay alive through the model do not keep it in one piece") {
    // A mask that the first nodes compute is alive at every later cut, so between layers 2 values
    // are alive instead of 1.
    std::vector<CutPlace> places = {{1, 1, 0}};
    for (int64_t p = 2; p < 80; ++p) places.push_back({p, p % 10 == 0 ? 2 : 4, p / 10 * 1000});
    const std::vector<int64_t> cuts = choose_cuts(places, 8000, 0);
    CHECK(cuts.size() == 7);
    for (const int64_t cut : cuts) CHECK(cut % 10 == 0);
}

}  // namespace dslaunch
