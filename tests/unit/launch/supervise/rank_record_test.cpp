#include "launch/supervise/failure_report.h"

#include <algorithm>
#include <csignal>

#include "base/error.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

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
        // A rank that lost a peer comes after a rank that did not, even if it ended earlier.
        {{ended(1, kLost), ended(2, 3)}, 1, failed, 3},
        {{ended(1, kLost), ended(2, kLost)}, 0, lost, lost},
        // A rank that the launcher killed comes last, whatever the order.
        {{told(ended(1, 0, SIGTERM)), ended(2, kLost)}, 1, lost, lost},
        {{told(ended(1, 0, SIGTERM)), ended(2, 0, SIGSEGV)}, 1, failed, 128 + SIGSEGV},
        // A rank that was asked to end has reported a reason of its own.
        {{ended(2, kLost), says(told(ended(1, input)), ExitCode::kInput, "x")}, 1, input, input},
        // A rank's message counts more than its exit code.
        {{says(ended(1, 1), ExitCode::kInput, "x"), ended(2, 9)}, 0, input, 1},
        {{says(ended(1, 9), ExitCode::kPeerLost, "x"), ended(2, 7)}, 1, failed, 7},
    };
    for (size_t i = 0; i < std::size(rows); ++i) {
        INFO("row " << i);
        CHECK(find_culprit(TargetKind::kProgram, rows[i].ranks) == rows[i].culprit);
        CHECK(job_exit_code(TargetKind::kModel, rows[i].ranks) == rows[i].train_code);
        CHECK(job_exit_code(TargetKind::kProgram, rows[i].ranks) == rows[i].program_code);
    }
}

TEST_CASE("a rank of a training job that ends with 0 while others need it is to blame") {
    const auto culprit = [](const std::vector<RankRecord>& ranks) {
        return find_culprit(TargetKind::kModel, ranks);
    };
    CHECK(culprit({ended(2, kLost), ended(1, 0)}) == 1);
    // Its end may be reported later than the others' ends.
    CHECK(culprit({ended(1, kLost), ended(2, kLost), ended(3, 0)}) == 2);
    CHECK(culprit({ended(1, kLost), ended(3, 0), ended(2, 0)}) == 2);
    CHECK(culprit({ended(1, kLost), told(ended(2, 0))}) == 0);
    CHECK(culprit({ended(1, kLost), ended(2, 0), ended(3, 4)}) == 2);
    CHECK(find_culprit(TargetKind::kProgram, {ended(1, kLost), ended(2, 0)}) == 0);
}

TEST_CASE("behind is the rank that fell silent, else the one that has done least") {
    using std::chrono::milliseconds;
    struct Heard {
        uint64_t done;
        uint64_t per_step;
        int at_ms;
    };
    struct Row {
        std::vector<Heard> ranks;  // done 0: nothing was heard
        std::optional<size_t> behind;
    };
    const Row rows[] = {
        {{}, std::nullopt},
        {{{0, 10, 0}, {0, 10, 0}}, std::nullopt},
        {{{40, 10, 0}, {40, 10, 900}}, std::nullopt},
        {{{41, 10, 0}, {40, 10, 900}, {41, 10, 500}}, 1},
        {{{41, 10, 9'000}, {41, 10, 5'000}, {41, 10, 9'500}}, 1},
        // Silence says more than progress. Of two silent ranks, the one that has done less is to
        // blame.
        {{{41, 10, 5'000}, {40, 10, 9'000}}, 0},
        {{{41, 10, 5'000}, {40, 10, 6'000}, {42, 10, 9'000}}, 1},
        // A rank in the middle of a plan of twenty instructions has done less than one at the end
        // of a plan of ten.
        {{{19, 10, 0}, {30, 20, 0}}, 1},
    };
    for (size_t i = 0; i < std::size(rows); ++i) {
        INFO("row " << i);
        std::vector<RankRecord> ranks;
        for (const Heard& heard : rows[i].ranks) {
            RankRecord record;
            if (heard.done > 0) record.heartbeat = Heartbeat{heard.done, heard.per_step, "here"};
            record.heard_at += milliseconds(heard.at_ms);
            ranks.push_back(record);
        }
        const auto behind = find_behind(ranks);
        REQUIRE(behind.has_value() == rows[i].behind.has_value());
        if (behind) CHECK(behind->index == *rows[i].behind);
    }
}

TEST_CASE("the report of a hang names the rank for which the others wait, and where it is") {
    RankRecord waiting = says(ended(1, 69), ExitCode::kHang, "rank 1 did not answer");
    waiting.heartbeat = Heartbeat{52, 10, "step 6, compute: Await of bucket 0"};
    waiting.heard_at += std::chrono::milliseconds(8'000);
    RankRecord stopped = told(ended(2, 0, SIGKILL));
    stopped.rank = 1;
    stopped.host = "right";
    stopped.pid = 77;
    stopped.heartbeat = Heartbeat{47, 10, "step 5, compute: Forward of segment 3 (layers.3)"};
    stopped.heard_at += std::chrono::milliseconds(4'500);
    CHECK_THAT(
        describe_failure({waiting, stopped}, 0, {}),
        Catch::Contains("  rank 1 on host right (pid 77) is behind, and has sent no heartbeat for "
                        "3.5 s: step 5, compute: Forward of segment 3 (layers.3); it has done 47 "
                        "instructions, and the other ranks have done 52 to 52\n"));
    // A rank that has made no progress since its start has done less than any other.
    RankRecord unheard = told(ended(3, 0, SIGKILL));
    unheard.rank = 2;
    unheard.host = "right";
    unheard.pid = 78;
    unheard.started = true;
    CHECK_THAT(
        describe_failure({waiting, stopped, unheard}, 0, {}),
        Catch::Contains("  rank 2 on host right (pid 78) is behind: it has sent no heartbeat "
                        "since it started\n"));
    // A rank that ended by itself does not keep others waiting.
    unheard.told_to_end = false;
    CHECK_THAT(describe_failure({waiting, stopped, unheard}, 0, {}),
               Catch::Contains("  rank 1 on host right (pid 77) is behind"));
    waiting.failure->code = static_cast<uint32_t>(ExitCode::kInput);
    CHECK_THAT(describe_failure({waiting, stopped}, 0, {}), !Catch::Contains("is behind"));
}

TEST_CASE("a heartbeat is read back as it was written, a broken one is refused") {
    const Heartbeat read = decode<Heartbeat>(encode(Heartbeat{7, 3, "step 1"}));
    CHECK(read.instructions_done == 7);
    CHECK(read.instructions_per_step == 3);
    CHECK(read.where == "step 1");
    CHECK(read.lanes.empty());
    Heartbeat timed{7, 3, "step 1", {{"compute", std::chrono::nanoseconds(5)}, {"", {}}}};
    const Heartbeat lanes = decode<Heartbeat>(encode(timed));
    CHECK(lanes.where == "step 1");
    REQUIRE(lanes.lanes.size() == 2);
    CHECK(lanes.lanes[0].lane == "compute");
    CHECK(lanes.lanes[0].busy == std::chrono::nanoseconds(5));
    CHECK(lanes.progress.empty());
    timed.progress = "step 1/3  loss 2.5";
    CHECK(decode<Heartbeat>(encode(timed)).progress == "step 1/3  loss 2.5");
    CHECK(decode<Heartbeat>(encode(timed)).lanes.size() == 2);
    Heartbeat begun{7, 3, "setting up"};
    begun.progress = "setting up: reading the model  2 s";
    CHECK(decode<Heartbeat>(encode(begun)).progress == begun.progress);
    CHECK(decode<Heartbeat>(encode(begun)).where == "setting up");
    CHECK_THROWS_AS(decode<Heartbeat>(encode(timed) + "x"), Error);
    CHECK_THROWS_AS(decode<Heartbeat>(encode(timed).substr(0, encode(timed).size() - 1)), Error);
    CHECK_THROWS_AS(decode<Heartbeat>("short"), Error);
    CHECK_THROWS_AS(decode<Heartbeat>(encode(Heartbeat{7, 0, "step 1"})), Error);
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
        RankRecord record = rank == 3 ? says(ended(1, 71), ExitCode::kSetup, "one\ntwo\n")
                                      : told(ended(rank + 2, 0, SIGTERM));
        record.rank = rank;
        record.host = std::string(1, rank < 500 ? 'a' : 'b');
        ranks.push_back(record);
    }
    ranks[7] = says(ended(2, 72), ExitCode::kDisk, "disk full");
    ranks[7].rank = 7;
    ranks[7].host = ranks[6].host;
    const std::string text = describe_failure(ranks, 3, {"12:00 error train: one", "two", "else"});
    CHECK_THAT(text, Catch::Contains("  it says: one\n    two\n"));
    CHECK_THAT(text, Catch::Contains("  rank 7 says: disk full\n"));
    CHECK_THAT(text, Catch::Contains("8-499"));
    CHECK_THAT(text, Catch::Contains("500-999"));
    CHECK(std::count(text.begin(), text.end(), '\n') < 20);
    CHECK_THAT(describe_failure(ranks, 3, {}, "run/logs/rank-3.log"),
               Catch::Contains("  log: run/logs/rank-3.log\n"));
}

TEST_CASE("a rank that somebody killed is told who that may have been, where no facts say so") {
    std::vector<RankRecord> ranks = {ended(1, 0, SIGKILL)};
    CHECK_THAT(describe_failure(ranks, 0, {}),
               Catch::Contains("SIGKILL was sent from outside") && Catch::Contains("dmesg"));
    std::vector<RankRecord> others(3, ranks[0]);
    others[0].told_to_end = true;
    others[1].exited.oom_evidence = "the kernel ended it";
    others[2].exited.signal_number = SIGSEGV;
    for (size_t i = 0; i < others.size(); ++i)
        CHECK(describe_failure(others, i, {}).find("from outside") == std::string::npos);
}

TEST_CASE("a mistake that a rank meets while it is set up is told as one error") {
    std::vector<RankRecord> ranks(2);
    for (size_t i = 0; i < ranks.size(); ++i) {
        ranks[i] = says(ended(static_cast<int>(i), 66), ExitCode::kInput, "a.bin: is empty");
        ranks[i].rank = static_cast<int>(i);
        ranks[i].host = "a";
        ranks[i].heartbeat = Heartbeat{0, 1, "setting up", {}};
    }
    CHECK(describe_failure(ranks, 0, {"12:00 something"}) == "dslaunch: error: a.bin: is empty\n");
    ranks[1].host = "b";
    CHECK(describe_failure(ranks, 1, {}) == "dslaunch: error: rank 1 on host b: a.bin: is empty\n");
    // A missing thing of a machine or a checkpoint is reported as briefly, before the first step.
    for (const ExitCode code : {ExitCode::kSetup, ExitCode::kCheckpoint}) {
        RankRecord record = says(ended(0, static_cast<int>(code)), code, "it is not there");
        record.heartbeat = Heartbeat{0, 1, "setting up", {}};
        CHECK(describe_failure({record}, 0, {}) == "dslaunch: error: it is not there\n");
        record.heartbeat->where = "step 3";
        CHECK_THAT(describe_failure({record}, 0, {}), Catch::Contains("failed first"));
    }
    // A full disk is a mistake before the first step, but it may also happen in the middle of the
    // work.
    ranks[0] = says(ranks[0], ExitCode::kDisk, "no room");
    CHECK_THAT(describe_failure(ranks, 0, {}), Catch::StartsWith("dslaunch: error: rank 0"));
    ranks[0].heartbeat->where = "step 7";
    CHECK_THAT(describe_failure(ranks, 0, {}), Catch::Contains("failed first: exit code 66"));
    // Its own message is newer than a heartbeat.
    ranks[0] = says(ranks[0], ExitCode::kDiverged, "training has diverged in step 5");
    ranks[0].heartbeat->where = "before the first step";
    CHECK_THAT(describe_failure(ranks, 0, {}), !Catch::Contains("it was at"));
}
