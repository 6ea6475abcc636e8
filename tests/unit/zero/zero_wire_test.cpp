// The bytes that a step sends between simulated hosts, compared with the plan's formula, at every
// stage, exact and packed; and copies that hosts keep.
#include <ATen/ops/equal.h>

#include <cmath>
#include <string>

#include "optimizers.h"
#include "support/catch.h"
#include "training_reference.h"

namespace dslaunch {

using namespace config;
using namespace graph;
using namespace plan;
namespace {

using testing::equal_bits;
using testing::kAdamW;
using testing::RankOutcome;
using testing::TrainingCase;
using Json = nlohmann::json;

const std::vector<std::vector<int>> kSeveralHosts = {{1, 1}, {2, 2}, {2, 1}, {1, 2, 1}, {2, 1, 2}};

// The bytes of KIND that rank 0's host sent in STEP (steps count from 0), and the formula's bytes.
struct Sent {
    int64_t counted = 0;
    int64_t planned = 0;
};
Sent sent(const RankOutcome& outcome, size_t step, const std::string& kind) {
    const Json& kinds = outcome.metrics.at(step).at("step_link_bytes").at("by_kind");
    if (!kinds.contains(kind)) return {};
    return {kinds.at(kind).at("sent"), kinds.at(kind).value("planned", int64_t{-1})};
}

// Checks that every step sends the plan's bytes, and that these are above 0 exactly for the kinds
// in MAY_SEND.
void check_counted(const RankOutcome& outcome, const std::vector<std::string>& may_send) {
    for (size_t step = 0; step < outcome.metrics.size(); ++step) {
        for (const std::string kind : {"reduce", "gather", "norm", "stage"}) {
            const Sent of = sent(outcome, step, kind);
            INFO("step " << step << ", " << kind);
            CHECK(of.counted == of.planned);
            CHECK((of.counted > 0) == (std::ranges::count(may_send, kind) > 0));
        }
        CHECK(sent(outcome, step, "tensor").counted == 0);
        // The facts of the previous step are small, but they are sent.
        CHECK((step == 0 || sent(outcome, step, "control").counted > 0));
    }
}

TrainingCase case_of(const std::vector<int>& hosts, int stage) {
    TrainingCase job{"wire", hosts, kAdamW};
    job.stage = stage;
    job.steps = 3;
    job.bucket_numel_max = 200;
    return job;
}

HostWire packed_wire() {
    HostWire wire;
    wire.parameters = wire.frozen = WirePacking::kInt8;
    wire.gradients = WirePacking::kInt4;
    return wire;
}

int64_t sum_of(const RankOutcome& outcome, const std::string& kind) {
    int64_t sum = 0;
    for (size_t step = 0; step < outcome.metrics.size(); ++step)
        sum += sent(outcome, step, kind).counted;
    return sum;
}

}  // namespace

TEST_CASE("each step sends between hosts what the plan says, by kind of instruction") {
    for (const std::vector<int>& hosts : kSeveralHosts) {
        for (const int stage : {0, 1, 2, 3}) {
            for (const int64_t accumulation : {1, 3}) {
                for (const bool micro_step : {false, true}) {
                    for (const double clipping : {0.0, 0.05}) {
                        TrainingCase job = case_of(hosts, stage);
                        job.accumulation = accumulation;
                        job.micro_step = micro_step;
                        job.clipping = clipping;
                        INFO(job.world_size() << " ranks on " << hosts.size() << " hosts, stage "
                                              << stage << ", " << accumulation << " micro steps, "
                                              << micro_step << ", clipping " << clipping);
                        std::vector<std::string> kinds = {"reduce"};
                        if (stage > 0) kinds.emplace_back("gather");
                        if (stage > 0 && clipping > 0) kinds.emplace_back("norm");
                        check_counted(train_world(job).front(), kinds);
                    }
                }
            }
        }
    }
}

TEST_CASE("hosts that hold copies send sums alone, as planned; one host sends nothing") {
    for (const int stage : {1, 2, 3}) {
        TrainingCase job = case_of({2, 2}, stage);
        job.accumulation = 2;
        job.shard_group = 2;
        job.clipping = 0.05;
        check_counted(train_world(job).front(), {"reduce"});
        job = case_of({3}, stage);
        const RankOutcome alone = train_world(job).front();
        CHECK(alone.metrics.back().at("step_link_bytes").at("by_kind").empty());
        CHECK(alone.metrics.back().at("step_link_bytes").at("by_host").empty());
    }
}

TEST_CASE("a step's bytes by host add up to those by kind") {
    TrainingCase job = case_of({2, 1, 2}, 3);
    const Json links = train_world(job).front().metrics.back().at("step_link_bytes");
    int64_t by_kind = 0, by_host = 0;
    for (const auto& [kind, traffic] : links.at("by_kind").items())
        by_kind += traffic.at("sent").get<int64_t>();
    for (const auto& [host, traffic] : links.at("by_host").items())
        by_host += traffic.at("sent").get<int64_t>();
    CHECK(by_kind == by_host);
    CHECK(links.at("by_host").size() == 2);
    CHECK(links.at("by_host").contains("1"));
    CHECK(links.at("by_host").contains("2"));
}

TEST_CASE("packed parameters and gradients take the bytes that the plan says, on equal bits") {
    for (const std::vector<int>& hosts : kSeveralHosts) {
        for (const int stage : {1, 2, 3}) {
            for (const bool half : {false, true}) {
                TrainingCase job = case_of(hosts, stage);
                job.accumulation = 2;
                job.clipping = 0.05;
                if (half) job.precision.compute = DType::kBF16;
                const RankOutcome exact = train_world(job).front();
                job.wire = packed_wire();
                const std::vector<RankOutcome> ranks = train_world(job);
                INFO(job.world_size() << " ranks on " << hosts.size() << " hosts, stage " << stage
                                      << ", half " << half);
                for (const RankOutcome& rank : ranks) CHECK(equal_bits(rank, ranks.front()));
                CHECK_FALSE(equal_bits(ranks.front(), exact));
                check_counted(ranks.front(), {"reduce", "gather", "norm"});
                CHECK(sum_of(ranks.front(), "reduce") < sum_of(exact, "reduce"));
                // Stages 1 and 2 gather in place, exactly.
                CHECK((sum_of(ranks.front(), "gather") < sum_of(exact, "gather")) == (stage == 3));
            }
        }
    }
}

TEST_CASE("packed runs come near the exact one, and the same way each time") {
    for (const bool feedback : {false, true}) {
        TrainingCase job = case_of({2, 1}, 3);
        job.steps = 6;
        const RankOutcome exact = train_world(job).front();
        job.wire = packed_wire();
        job.wire.error_feedback = feedback;
        const RankOutcome packed = train_world(job).front();
        CHECK(equal_bits(packed, train_world(job).front()));
        for (size_t step = 0; step < exact.losses().size(); ++step)
            CHECK(packed.losses()[step] == Approx(exact.losses()[step]).epsilon(0.05));
        CHECK_FALSE(packed.losses() == exact.losses());
        const auto held = [](const RankOutcome& outcome) {
            return outcome.metrics.back().at("memory").at("gradients").get<int64_t>();
        };
        CHECK((held(packed) > held(exact)) == feedback);
    }
}

TEST_CASE("saved weights are the exact ones, not those that were packed") {
    // SGD with a rate of 0 changes nothing, so a gather must bring the old values.
    for (const bool half : {false, true}) {
        TrainingCase job = case_of({1, 2}, 3);
        job.optimizer = testing::kSgd;
        job.optimizer.lr = 0;
        if (half) job.precision.compute = DType::kBF16;
        job.wire = packed_wire();
        for (const RankOutcome& rank : train_world(job))
            for (const auto& [name, values] : testing::initial_parameters())
                CHECK(at::equal(rank.parameters.at(name), values));
    }
}

TEST_CASE("hosts that keep what they gather have the bits of those that gather again") {
    for (const std::vector<int>& hosts : kSeveralHosts) {
        for (const int64_t accumulation : {1, 3}) {
            for (const int64_t groups : {0, 2}) {
                for (const bool packs : {false, true}) {
                    TrainingCase job = case_of(hosts, 3);
                    job.accumulation = accumulation;
                    job.recompute_groups = groups;
                    if (packs) job.wire = packed_wire();
                    const RankOutcome again = train_world(job).front();
                    job.wire.host_copy = true;
                    const std::vector<RankOutcome> kept = train_world(job);
                    INFO(job.world_size() << " ranks on " << hosts.size() << " hosts, "
                                          << accumulation << " micro steps, packs " << packs);
                    for (const RankOutcome& rank : kept) CHECK(equal_bits(rank, again));
                    check_counted(kept.front(), {"reduce", "gather"});
                    CHECK(sum_of(kept.front(), "gather") < sum_of(again, "gather"));
                }
            }
        }
    }
}

}  // namespace dslaunch
