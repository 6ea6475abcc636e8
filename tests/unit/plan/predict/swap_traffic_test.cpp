#include "plan/predict/swap_traffic.h"

#include "support/catch.h"

namespace dslaunch {

using namespace plan;
namespace {

// Returns a trace of N chunks that are updated one after the other. Each has 100 bytes to read and
// 300 to write.
SwapTrace cycle(int n) {
    SwapTrace trace;
    for (int c = 0; c < n; ++c) {
        trace.uses.push_back({c, true});
        trace.traffic.push_back({10, 100, 300});
    }
    return trace;
}

void check(const SwapTraffic& found, double hits, double misses) {
    CHECK(found.uses == Approx(hits + misses));
    CHECK(found.hits == Approx(hits).margin(1e-9));
    CHECK(found.read_bytes == Approx(100 * misses).margin(1e-9));
    CHECK(found.written_bytes == Approx(300 * misses).margin(1e-9));
}

// A chain of layers of 64 Ki elements on one rank. If ACCUMULATION is above 1, the gradients of
// micro steps are summed, so that sums are moved too.
struct Chain {
    int64_t buffers = 4;
    EvictionRule rule = EvictionRule::kFifo;
    bool parameters = false;
    bool half = false;
    int64_t accumulation = 1;

    [[nodiscard]] SwapTraffic planned() const {
        return planned_swaps(plan(), options().chunk_format());
    }
    [[nodiscard]] SwapTraffic least() const {
        return least_swaps(swap_trace(plan(), options().chunk_format()), buffers);
    }
    [[nodiscard]] StepPlan plan() const {
        const FlatLayout layout = make_flat_layout(model(), {1 << 16, 1, true, 0, 64});
        const Partition partition = make_partition(layout, model(), ShardBy::kFlat, 1);
        StepPlanOptions with = options();
        with.partition = &partition;
        return make_step_plan(model(), layout, with);
    }

  private:
    static ModelInfo model() {
        ModelInfo model;
        for (int s = 0; s < 12; ++s) {
            SegmentInfo segment;
            segment.name = "layer";
            segment.output_bytes = Bytes{100};
            segment.parameters = {s};
            model.parameters.push_back({fmt::format("w{}", s), 1 << 16, 4, true});
            model.segments.push_back(segment);
        }
        return model;
    }
    [[nodiscard]] StepPlanOptions options() const {
        StepPlanOptions options;
        options.stage = 3;
        options.accumulation_steps = accumulation;
        options.clip = accumulation > 1;
        options.parameter_bytes = half ? 2 : 4;
        options.master = half;
        options.offload = {true, parameters, 1 << 16, buffers};
        options.offload.eviction = rule;
        return options;
    }
};

}  // namespace

TEST_CASE("chunks in a circle: Belady hits (k-1)/(n-1), and all if they fit") {
    for (const int n : {3, 9, 17, 33, 64})
        for (int k = 1; k < n; k += 1 + k / 2) {
            INFO(n << " chunks, " << k << " buffers");
            const double hits = static_cast<double>(n) * (k - 1) / (n - 1);
            check(least_swaps(cycle(n), k), hits, n - hits);
        }
    for (const int n : {1, 5, 12}) check(least_swaps(cycle(n), n + 2), n, 0);
    CHECK(least_swaps({}, 4).uses == 0);
}

TEST_CASE("a gather takes what a buffer holds, and no buffer where none does") {
    // Chunk 0 is gathered twice around its update, chunk 1 only gathered.
    SwapTrace trace;
    trace.uses = {{0, false}, {1, false}, {0, true}, {0, false}, {2, true}};
    trace.traffic = {{10, 100, 300}, {20, 0, 0}, {40, 400, 900}};
    const SwapTraffic one = least_swaps(trace, 1);
    // From disk come 0, 1 and both updates; the gather after the update comes from the buffer.
    CHECK(one.hits == 1);
    CHECK(one.read_bytes == 10 + 20 + 100 + 400);
    CHECK(one.written_bytes == 300 + 900);
    const SwapTraffic two = least_swaps(trace, 2);
    CHECK(two.hits == 4);
    CHECK(two.read_bytes == 20);
    CHECK(two.written_bytes == 0);
}

TEST_CASE("what a plan moves: each chunk that has no buffer of its own, once each way") {
    constexpr double kStates = 8.0 * (1 << 16);  // two moments
    for (const int64_t accumulation : {1, 3}) {
        INFO("accumulation " << accumulation);
        // 12 chunks. 4 buffers keep no chunk. 8 buffers keep 4 chunks under LFU; under FIFO they
        // keep the chunks of the 4 turns whose buffers no other turn needs.
        for (const auto& [buffers, rule, staying] : {std::tuple{4, EvictionRule::kFifo, 0},
                                                     {4, EvictionRule::kLfu, 0},
                                                     {6, EvictionRule::kFifo, 0},
                                                     {6, EvictionRule::kLfu, 2},
                                                     {8, EvictionRule::kFifo, 4},
                                                     {8, EvictionRule::kLfu, 4},
                                                     {11, EvictionRule::kFifo, 10},
                                                     {12, EvictionRule::kLfu, 12}}) {
            INFO(buffers << " buffers, " << staying << " stay");
            const SwapTraffic found = Chain{buffers, rule, false, false, accumulation}.planned();
            CHECK(found.uses == 12);
            CHECK(found.hits == staying);
            CHECK(found.read_bytes == kStates * (12 - staying));
            CHECK(found.written_bytes == kStates * (12 - staying));
        }
    }
}

TEST_CASE("no plan moves less than the least") {
    for (const bool parameters : {false, true})
        for (const bool half : {false, true})
            for (const int64_t accumulation : {1, 2})
                for (int64_t buffers = 2; buffers <= 12; ++buffers)
                    for (const EvictionRule rule : {EvictionRule::kFifo, EvictionRule::kLfu}) {
                        CAPTURE(parameters, half, accumulation, buffers, rule);
                        const Chain chain{buffers, rule, parameters, half, accumulation};
                        const SwapTraffic plan = chain.planned(), least = chain.least();
                        CHECK(plan.uses == least.uses);
                        CHECK(plan.hits >= 0);
                        CHECK(plan.written_bytes >= least.written_bytes);
                        CHECK(plan.read_bytes >= least.read_bytes);
                    }
}

}  // namespace dslaunch
