// One bit is flipped in one rank's copy of a tensor. The check must name rank, tensor and step.
#include <string>
#include <vector>

#include "optimizers.h"
#include "runtime/watch/equal_check.h"
#include "support/catch.h"
#include "training_world.h"

namespace dslaunch {

using namespace runtime;
using testing::kAdamW;
using testing::TrainingCase;

namespace {

constexpr int64_t kStep = 3;

// The value whose lowest bit a rank flips after step kStep.
struct Flip {
    int rank = -1;  // -1: none
    int state = -1;
    std::string parameter;
};

// Flips the lowest bit of the first value of FLIP that this rank saves.
void flip_bit(const Flip& flip, const plan::ModelInfo& info, ParameterState& state) {
    for (const SavedPiece& piece : state.saved_pieces()) {
        if (piece.state != flip.state || piece.values == nullptr ||
            info.parameters[piece.parameter].name != flip.parameter)
            continue;
        auto* const value = const_cast<std::byte*>(piece.values);
        *value ^= std::byte{1};
        return;
    }
    FAIL("rank " << flip.rank << " saves nothing of " << flip.parameter);
}

// Trains JOB and flips the bit. Returns the error of the check after kStep on each rank; empty: no
// error.
std::vector<std::string> said_after_flip(TrainingCase job, const Flip& flip) {
    const plan::ModelInfo info = testing::TrainingSetup(job).info;
    std::vector<std::string> said(static_cast<size_t>(job.world_size()));
    job.steps = kStep + 1;
    job.after_step = [&](int64_t step, ParameterState& state, Collectives& collectives) {
        const EqualCheck check(collectives, collectives.topology(), info, {},
                               {"exp_avg", "exp_avg_sq"});
        if (step < kStep) return check.check(step, state);
        if (step > kStep) return;
        const int rank = collectives.topology().rank();
        state.settle();
        if (rank == flip.rank) flip_bit(flip, info, state);
        collectives.barrier();
        try {
            check.check(step, state);
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kDiverged);
            said[static_cast<size_t>(rank)] = error.what();
        }
    };
    static_cast<void>(testing::train_world(job));
    return said;
}

TrainingCase job_of(std::vector<int> hosts, int stage) {
    TrainingCase job;
    job.node_sizes = std::move(hosts);
    job.optimizer = kAdamW;
    job.stage = stage;
    job.clipping = 1;
    return job;
}

}  // namespace

TEST_CASE("a bit that flips in one rank's copy is named with rank, tensor and step") {
    struct Row {
        TrainingCase job;
        Flip flip;
        std::string words;
    };
    TrainingCase groups = job_of({2, 2}, 1);  // each host holds a copy of the states
    groups.shard_group = 2;
    const std::vector<Row> rows = {
        {job_of({3}, 0), {1, 0, "w2"}, "the optimizer state exp_avg of `w2` on rank 1 on "},
        {job_of({2, 1}, 0), {2, 1, "w1"}, "the optimizer state exp_avg_sq of `w1` on rank 2 on "},
        {job_of({1, 1, 1}, 0), {2, -1, "w2"}, "the weights of `w2` on rank 2 on "},
        {job_of({1, 1, 1}, 1), {2, -1, "w3"}, "the weights of `w3` on rank 2 on "},
        {job_of({2, 1, 1}, 2), {3, -1, "w3"}, "the weights of `w3` on rank 3 on "},
        {job_of({1, 1}, 0), {1, -1, "w1"}, "the weights of `w1` differ between rank 0 on "},
        {groups, {3, 0, "w3"}, "the optimizer state exp_avg of `w3` differ between rank 1 on "},
    };
    for (const Row& row : rows) {
        INFO(row.words);
        for (const std::string& said : said_after_flip(row.job, row.flip)) {
            CHECK_THAT(said, Catch::Contains("after step 3, ranks no longer keep equal copies: "));
            CHECK_THAT(said, Catch::Contains(row.words));
        }
    }
}

TEST_CASE("equal copies pass at every stage, on every division of ranks over hosts") {
    for (const int stage : {0, 1, 2, 3})
        for (const std::vector<int>& hosts : {std::vector<int>{1}, {3}, {1, 1}, {2, 1}, {2, 2}}) {
            INFO("stage " << stage << " on " << hosts.size() << " hosts");
            for (const std::string& said : said_after_flip(job_of(hosts, stage), {}))
                CHECK(said.empty());
        }
}

}  // namespace dslaunch
