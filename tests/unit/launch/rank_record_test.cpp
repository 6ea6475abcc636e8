#include "launch/rank_record.h"

#include <algorithm>
#include <csignal>

#include "base/error.h"
#include "launch/failure_report.h"
#include "support/catch.h"

using namespace dslaunch;

namespace {

constexpr auto kLost = static_cast<int64_t>(ExitCode::kPeerLost);

RankRecord ended(int order, int64_t status, int64_t signal_number = 0) {
    RankRecord record;
    record.started = true;
    record.ended = true;
    record.order = order;
    record.exited.exit_status = status;
    record.exited.signal_number = signal_number;
    return record;
}

RankRecord told(RankRecord record) {
    record.told_to_end = true;
    return record;
}

RankRecord says(RankRecord record, ExitCode code, const std::string& message) {
    record.failure = AgentProblem{static_cast<uint32_t>(code), message};
    return record;
}

}  // namespace

TEST_CASE("the rank to blame is the first that failed by itself") {
    struct Row {
        std::vector<RankRecord> ranks;
        std::optional<size_t> culprit;
        int train_code;
        int program_code;
    };
    const int failed = static_cast<int>(ExitCode::kRankFailed);
    const int lost = static_cast<int>(kLost);
    const int input = static_cast<int>(ExitCode::kInput);
    const Row rows[] = {
        {{ended(1, 0), ended(2, 0)}, std::nullopt, 0, 0},
        {{ended(2, 3), ended(1, 4)}, 1, failed, 4},
        // Who lost a peer comes after who did not, though it ended before.
        {{ended(1, kLost), ended(2, 3)}, 1, failed, 3},
        {{ended(1, kLost), ended(2, kLost)}, 0, lost, lost},
        // Killed by us comes last, whatever its order.
        {{told(ended(1, 0, SIGTERM)), ended(2, kLost)}, 1, lost, lost},
        {{told(ended(1, 0, SIGTERM)), ended(2, 0, SIGSEGV)}, 1, failed, 128 + SIGSEGV},
        // Asked to end, but it had a reason of its own, which it told.
        {{ended(2, kLost), says(told(ended(1, input)), ExitCode::kInput, "x")}, 1, input, input},
        // Its message counts before its exit code.
        {{says(ended(1, 1), ExitCode::kInput, "x"), ended(2, 9)}, 0, input, 1},
        {{says(ended(1, 9), ExitCode::kPeerLost, "x"), ended(2, 7)}, 1, failed, 7},
    };
    for (size_t i = 0; i < std::size(rows); ++i) {
        INFO("row " << i);
        CHECK(find_culprit(rows[i].ranks) == rows[i].culprit);
        CHECK(job_exit_code(TargetKind::kTorchScript, rows[i].ranks) == rows[i].train_code);
        CHECK(job_exit_code(TargetKind::kProgram, rows[i].ranks) == rows[i].program_code);
    }
}

TEST_CASE("an end is told in words") {
    CHECK(describe_end(RankRecord{}) == "not started");
    CHECK(describe_end(ended(1, 3)) == "exit code 3");
    CHECK(describe_end(told(ended(1, 0, SIGTERM))) ==
          "killed by SIGTERM (Terminated), ended by dslaunch");
    RankRecord record = ended(1, 0, SIGSEGV);
    record.exited.dumped_core = true;
    CHECK(describe_end(record) == "killed by SIGSEGV (Segmentation fault), core dumped");
}

TEST_CASE("the report holds each message once, in indented lines, and groups a thousand ranks") {
    std::vector<RankRecord> ranks;
    for (int rank = 0; rank < 1000; ++rank) {
        RankRecord record = rank == 3 ? says(ended(1, 66), ExitCode::kInput, "one\ntwo\n")
                                      : told(ended(rank + 2, 0, SIGTERM));
        record.rank = rank;
        record.host = std::string(1, rank < 500 ? 'a' : 'b');
        ranks.push_back(record);
    }
    ranks[7] = says(ended(2, 72), ExitCode::kDisk, "disk full");
    ranks[7].rank = 7;
    ranks[7].host = ranks[6].host;
    const std::string text = describe_failure(ranks, 3, {"12:00 error train: one", "two", "else"});
    CHECK_THAT(text, Catch::Contains("  it says: one\n    two\n  its last lines:\n    else\n"));
    CHECK_THAT(text, Catch::Contains("  rank 7 says: disk full\n"));
    CHECK_THAT(text, Catch::Contains("8-499"));
    CHECK_THAT(text, Catch::Contains("500-999"));
    CHECK(std::count(text.begin(), text.end(), '\n') < 20);
}
