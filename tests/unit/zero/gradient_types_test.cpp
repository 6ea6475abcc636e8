// Gradients that travel between simulated hosts in 16 bits, gradients that are divided before,
// gradients that are added up, and weights that stay fp32 under autocast.
#include <ATen/ops/equal.h>

#include <cmath>
#include <string>

#include "optimizers.h"
#include "support/catch.h"
#include "training_reference.h"

namespace dslaunch {

using namespace config;
using namespace graph;
namespace {

using testing::equal_bits;
using testing::kAdamW;
using testing::RankOutcome;
using testing::TrainingCase;

const std::vector<std::vector<int>> kTwoHostsAndMore = {{1, 1}, {2, 2}, {2, 1}, {1, 2, 1}};

TrainingCase typed_case(const std::vector<int>& hosts, int stage) {
    TrainingCase job{"gradient types", hosts, kAdamW};
    job.stage = stage;
    job.steps = 3;
    return job;
}

struct ReducedBytes {
    int64_t counted = 0;
    int64_t planned = 0;
};
ReducedBytes reduced_bytes(const RankOutcome& rank) {
    ReducedBytes bytes;
    for (const nlohmann::json& line : rank.metrics) {
        const nlohmann::json& reduce = line.at("step_link_bytes").at("by_kind").at("reduce");
        bytes.counted += reduce.at("sent").get<int64_t>();
        bytes.planned += reduce.at("planned").get<int64_t>();
    }
    return bytes;
}

// Returns the largest distance of a parameter of A from B's, divided by the largest of B's.
double largest_move(const RankOutcome& a, const RankOutcome& b) {
    double largest = 0;
    for (const auto& [name, tensor] : a.parameters) {
        const at::Tensor other = b.parameters.at(name);
        largest = std::max(
            largest, ((tensor - other).abs().max() / other.abs().max()).template item<double>());
    }
    return largest;
}

TrainingCase autocast_case(const std::vector<int>& hosts, int stage, DType dtype) {
    TrainingCase job = typed_case(hosts, stage);
    job.micro_step = true;
    job.precision.compute = dtype;
    job.precision.fp32_weights = true;
    if (dtype == DType::kF16) {
        job.precision.skip_nonfinite_steps = true;
        job.precision.loss_scale = {.dynamic = true,
                                    .initial = 1024,
                                    .minimum = 0x1p-24,
                                    .window = 2000,
                                    .hysteresis = 1,
                                    .grows_in_window = true};
    }
    return job;
}

}  // namespace

TEST_CASE("gradients in 16 bits take half the bytes, as planned, and all ranks have equal bits") {
    for (const std::vector<int>& hosts : kTwoHostsAndMore)
        for (const int stage : {0, 1, 2, 3})
            for (const WirePacking packing : {WirePacking::kBf16, WirePacking::kF16}) {
                TrainingCase job = typed_case(hosts, stage);
                job.clipping = 0.05;
                INFO(job.world_size() << " ranks on " << hosts.size() << " hosts, stage " << stage
                                      << ", packing " << static_cast<int>(packing));
                const RankOutcome exact = train_world(job).front();
                job.wire.gradients = packing;
                const std::vector<RankOutcome> ranks = train_world(job);
                for (const RankOutcome& rank : ranks) CHECK(equal_bits(rank, ranks.front()));
                CHECK_FALSE(equal_bits(ranks.front(), exact));
                // Adam divides by the gradients that it has seen, so an update's error is a
                // gradient's error.
                CHECK(largest_move(ranks.front(), exact) <
                      (packing == WirePacking::kBf16 ? 5e-3 : 1e-3));
                const ReducedBytes all = reduced_bytes(exact), half = reduced_bytes(ranks.front());
                CHECK(half.counted == half.planned);
                // Flags travel unpacked: one per slice, in steps of 16 per bucket.
                CHECK(half.counted * 2 >= all.counted);
                CHECK(half.counted * 200 < all.counted * 120);  // three hosts send more flags
            }
}

// bf16 has fp32's exponents: a power of two before and after changes no bit.
TEST_CASE("a division by a power of two before gradients travel in bf16 changes no bit") {
    for (const std::vector<int>& hosts : {std::vector<int>{1, 1}, {2, 1}})
        for (const int stage : {0, 2}) {
            TrainingCase job = typed_case(hosts, stage);
            job.wire.gradients = WirePacking::kBf16;
            const RankOutcome plain = train_world(job).front();
            job.wire.predivide = 4;
            CHECK(equal_bits(train_world(job).front(), plain));
            job.wire.predivide = 3;
            CHECK_FALSE(equal_bits(train_world(job).front(), plain));
        }
}

TEST_CASE("gradients that are marked exact have their fp32 bits beside others in 16 bits") {
    for (const std::vector<int>& hosts : {std::vector<int>{1, 1}, {2, 1}})
        for (const int stage : {0, 1, 2, 3}) {
            TrainingCase job = typed_case(hosts, stage);
            job.steps = 1;
            job.optimizer = testing::kSgd;
            const RankOutcome exact = train_world(job).front();
            job.wire.gradients = WirePacking::kBf16;
            const RankOutcome rounded = train_world(job).front();
            job.exact_gradients = {"w1", "gain"};
            const RankOutcome mixed = train_world(job).front();
            INFO(hosts.size() << " hosts, stage " << stage);
            for (const auto& [name, tensor] : mixed.parameters) {
                INFO(name);
                const bool marked = name == "w1" || name == "gain";
                // At stage 0 a host rounds the terms that others send it, and not its own terms.
                // Its own terms depend on the number of elements that travel.
                if (marked || stage > 0)
                    CHECK(at::equal(tensor, (marked ? exact : rounded).parameters.at(name)));
            }
            CHECK_FALSE(at::equal(mixed.parameters.at("w1"), rounded.parameters.at("w1")));
            CHECK_FALSE(at::equal(mixed.parameters.at("w2"), exact.parameters.at("w2")));
            const ReducedBytes bytes = reduced_bytes(mixed);
            CHECK(bytes.counted == bytes.planned);
            CHECK(bytes.counted > reduced_bytes(rounded).counted);
            CHECK(bytes.counted < reduced_bytes(exact).counted);
        }
}

TEST_CASE("sums of gradients instead of means are means times the number of ranks") {
    for (const std::vector<int>& hosts : {std::vector<int>{4}, {2}, {2, 2}, {1, 1}})
        for (const int stage : {0, 1, 2, 3})
            for (const bool fused : {false, true}) {
                TrainingCase job = typed_case(hosts, stage);
                job.fused = fused && stage == 0;
                job.optimizer = testing::optimizer(OptimizerKind::kSgd, 0);
                const RankOutcome mean = train_world(job).front();
                // The number of ranks is a power of two, so both give the same numbers.
                job.adds_ranks = true;
                const RankOutcome too_far = train_world(job).front();
                job.optimizer.lr /= job.world_size();
                const RankOutcome sum = train_world(job).front();
                INFO(job.world_size() << " ranks, stage " << stage << ", fused " << fused);
                CHECK(equal_bits(sum, mean));
                CHECK_FALSE(equal_bits(too_far, mean));
            }
}

TEST_CASE("under autocast with fp32 weights every stage has the same bits, near those of fp32") {
    for (const std::vector<int>& hosts : {std::vector<int>{1}, {3}, {2, 1}})
        for (const DType dtype : {DType::kBF16, DType::kF16}) {
            const RankOutcome first = train_world(autocast_case(hosts, 0, dtype)).front();
            TrainingCase in_fp32 = autocast_case(hosts, 0, dtype);
            in_fp32.precision = {};
            const RankOutcome fp32 = train_world(in_fp32).front();
            TrainingCase masters = autocast_case(hosts, 0, dtype);
            masters.precision.fp32_weights = false;
            const RankOutcome half = train_world(masters).front();
            INFO(hosts.size() << " hosts, dtype " << static_cast<int>(dtype));
            CHECK_FALSE(equal_bits(first, fp32));
            CHECK_FALSE(equal_bits(first, half));
            CHECK(largest_move(first, fp32) < 0.1);
            for (const int stage : {1, 2, 3}) {
                INFO("stage " << stage);
                for (const RankOutcome& rank : train_world(autocast_case(hosts, stage, dtype)))
                    CHECK(equal_bits(rank, first));
            }
        }
}

}  // namespace dslaunch
