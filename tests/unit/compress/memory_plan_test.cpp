// The memory that compressing takes, by closed forms, and the portions of a layer.
#include "compress/memory_plan.h"

#include "base/error.h"
#include "support/catch.h"

namespace dslaunch::compress {
namespace {

// A layer as Mixtral's: attention of WIDTH, and EXPERTS of WIDTH x MLP.
LayerSizes layer_of(int64_t width, int64_t mlp, int64_t experts) {
    LayerSizes layer = {{"q", width, width, 0},
                        {"k", width / 4, width, 0},
                        {"v", width / 4, width, 0},
                        {"o", width, width, 1}};
    for (int64_t i = 0; i < experts; ++i) {
        layer.push_back({"gate", mlp, width, 2 + 2 * i});
        layer.push_back({"up", mlp, width, 2 + 2 * i});
        layer.push_back({"down", width, mlp, 3 + 2 * i});
    }
    return layer;
}

storage::TransformerConfig config_of(int64_t width, int64_t mlp) {
    storage::TransformerConfig config;
    config.dtype = DType::kBF16;
    config.width = width;
    config.heads = 4;
    config.key_heads = 1;
    config.head_width = width / 4;
    config.mlp_width = mlp;
    return config;
}

TEST_CASE("a portion has whole inputs, and no more moments than fit") {
    const LayerSizes layer = layer_of(8, 16, 2);  // squares of 256 B, for down 1 KiB
    const auto numels = [&](int64_t bytes) {
        std::vector<int64_t> found;
        int64_t end = 0;
        for (const Range& portion : portions_of(layer, {bytes})) {
            CHECK(portion.begin == end);
            end = portion.end();
            found.push_back(portion.numel);
        }
        CHECK(end == std::ssize(layer));
        return found;
    };
    CHECK(numels(256 * 4 + 1024 * 2) == std::vector<int64_t>{10});
    CHECK(numels(256 * 4 + 1024 * 2 - 1) == std::vector<int64_t>{9, 1});
    CHECK(numels(1024 + 256) == std::vector<int64_t>{6, 3, 1});
    // Less than one input's moments: each input alone.
    CHECK(numels(0) == std::vector<int64_t>{3, 1, 2, 1, 2, 1});
    CHECK(portions_of({}, {0}).empty());
}

TEST_CASE("the memory of a calibrated layer is that of its texts, moments and widest weight") {
    const storage::TransformerConfig config = config_of(64, 256);
    const std::vector<LayerSizes> layers = {layer_of(64, 256, 1), layer_of(64, 256, 8)};
    const WalkSize texts{1000, 500, 40};
    const MemoryPlan plan = plan_memory(config, layers, texts, std::nullopt);
    CHECK(plan.passes == 1);
    CHECK(plan.need.texts.value == 1000 * 64 * 4);
    const int64_t numbers = 64 * (64 + 16 + 16 + 64) + 8 * 3 * 64 * 256;
    CHECK(plan.largest_layer.value == 2 * numbers);
    CHECK(plan.need.moments.value == 4 * (2 * 64 * 64 + 8 * (64 * 64 + 256 * 256)));
    // down: five squares of 256 inputs, five fp32 copies of the weight, and its codes.
    CHECK(plan.need.rounding.value == 5 * 4 * 256 * 256 + 21 * 64 * 256);
    // A pass holds at least the rows at the layer's ends, and keys and values.
    CHECK(plan.need.pass.value > 500 * 4 * (2 * 64 + 2 * 256) + 2 * 640 * 16 * 4);
    // Without texts, weights are rounded one after the other.
    const MemoryPlan nearest = plan_memory(config, layers, {}, std::nullopt);
    const int64_t used = numbers + 9 * 64 * 256;
    CHECK(nearest.need.total().value == used + used / 5);
    CHECK(nearest.need.moments.value == 0);
}

TEST_CASE("a layer whose moments do not fit is divided, and one that cannot fit is refused") {
    const storage::TransformerConfig config = config_of(64, 256);
    const std::vector<LayerSizes> layers = {layer_of(64, 256, 8)};
    const WalkSize texts{1000, 500, 40};
    const auto with = [&](int64_t left) {
        return plan_memory(config, layers, texts, MemoryLimit{"memory.max of group /job", {left}});
    };
    const MemoryPlan whole = plan_memory(config, layers, texts, std::nullopt);
    const int64_t all = whole.need.total().value, moments = whole.need.moments.value;
    CHECK(with(all).passes == 1);
    CHECK(with(all).need.total() == whole.need.total());
    CHECK(with(all - 1).passes == 2);
    CHECK(with(all - 1).need.total().value == all - 1);
    const int64_t one_input = 4 * 256 * 256;
    // Between two of down, gate's square fits beside the next one at the most.
    CHECK(with(all - moments + one_input).passes == 16);
    try {
        static_cast<void>(with(all - moments + one_input - 1));
        FAIL("accepted");
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kSetup);
        CHECK_THAT(error.what(), Catch::Contains("memory.max of group /job") &&
                                     Catch::Contains("--calibration-rows"));
    }
    // A descent keeps the rows of the exact model too, and happens when the moments are freed.
    WalkSize descent = texts;
    descent.descends = true;
    descent.text_max = 100;
    const MemoryPlan descends = plan_memory(config, layers, descent, std::nullopt);
    CHECK(descends.need.texts.value == 2 * whole.need.texts.value);
    const int64_t numbers = descends.largest_layer.value / 2;
    CHECK(descends.need.descent.value > 18 * numbers + 100 * 4 * 2 * 4 * 64);
    const int64_t least = descends.need.texts.value + descends.need.weights.value +
                          descends.need.descent.value + descends.need.spare.value;
    CHECK(descends.need.total().value >= least);
    CHECK_THROWS_WITH(plan_memory(config, layers, descent, MemoryLimit{"memory.max", {least - 1}}),
                      Catch::Contains("the descent on a layer"));
    // Without texts there are no moments, and no rows to leave out.
    try {
        static_cast<void>(
            plan_memory(config, layers, {}, MemoryLimit{"MemAvailable of /proc/meminfo", {1}}));
        FAIL("accepted");
    } catch (const Error& error) {
        CHECK_THAT(error.what(), !Catch::Contains("--calibration-rows"));
    }
}

}  // namespace
}  // namespace dslaunch::compress
