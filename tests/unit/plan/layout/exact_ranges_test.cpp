// The parts of a bucket whose gradients travel unpacked.
#include "plan/layout/flat_layout.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::plan;

TEST_CASE("the exact ranges of a bucket are its exact slices, neighbours joined, and its flags") {
    ModelInfo model;
    SegmentInfo segment;
    for (const auto& [numel, exact] : {std::pair{32, true}, {16, true}, {40, false}, {7, true}}) {
        ParameterInfo parameter;
        parameter.numel = numel;
        parameter.exact_gradient = exact;
        segment.parameters.push_back(static_cast<int>(model.parameters.size()));
        model.parameters.push_back(parameter);
    }
    model.segments = {segment};
    const FlatLayout layout = make_flat_layout(model, {});
    REQUIRE(layout.buckets.size() == 1);
    // Slices begin at multiples of 16: 0, 32, 48, 96; four flags take 16 elements after 112.
    CHECK(exact_ranges(layout, 0) == std::vector<Range>{{0, 48}, {96, 7}, {112, 16}});
    for (ParameterInfo& parameter : model.parameters) parameter.exact_gradient = false;
    CHECK(exact_ranges(make_flat_layout(model, {}), 0) == std::vector<Range>{{112, 16}});
}
