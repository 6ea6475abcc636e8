#include "runtime/data/eval_plan.h"

#include <vector>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::runtime;

TEST_CASE("an evaluation takes each sample once over all ranks, in rounds that all ranks share") {
    for (int64_t samples = 0; samples <= 40; ++samples)
        for (const int64_t rows : {1, 2, 3, 7, 50})
            for (int64_t ranks = 1; ranks <= 7; ++ranks) {
                std::vector<int> taken(static_cast<size_t>(samples));
                std::vector<bool> index_used(static_cast<size_t>(samples + ranks));
                for (int64_t rank = 0; rank < ranks; ++rank) {
                    const EvalPlan plan{samples, rows, ranks, rank};
                    REQUIRE(plan.round_count() ==
                            (EvalPlan{samples, rows, ranks, 0}.round_count()));
                    for (int64_t round = 0; round < plan.round_count(); ++round) {
                        const EvalBatch batch = plan.batch(round);
                        for (int64_t i = 0; i < batch.rows; ++i)
                            ++taken.at(static_cast<size_t>(batch.first + i));
                        REQUIRE(!index_used.at(static_cast<size_t>(batch.index)));
                        index_used.at(static_cast<size_t>(batch.index)) = true;
                    }
                }
                for (const int times : taken) REQUIRE(times == 1);
            }
}

TEST_CASE("only the last batch is partial, and ranks without one in the last round get no rows") {
    const EvalPlan first{.sample_count = 11, .batch_rows = 4, .ranks = 2, .rank = 0};
    const EvalPlan second{.sample_count = 11, .batch_rows = 4, .ranks = 2, .rank = 1};
    REQUIRE(first.round_count() == 2);
    REQUIRE(first.batch(0).first == 0);
    REQUIRE(first.batch(0).rows == 4);
    REQUIRE(second.batch(0).first == 4);
    REQUIRE(second.batch(0).rows == 4);
    REQUIRE(first.batch(1).index == 2);
    REQUIRE(first.batch(1).first == 8);
    REQUIRE(first.batch(1).rows == 3);
    REQUIRE(second.batch(1).index == 3);
    REQUIRE(second.batch(1).rows == 0);
}
