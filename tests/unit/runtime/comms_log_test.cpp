// The table of exchanges between ranks, for made-up times of a plan's instructions.
#include "runtime/train/comms_log.h"

#include "support/catch.h"

namespace dslaunch {

using namespace runtime;
namespace {

using std::chrono::milliseconds;

plan::StepPlan two_reduces_and_a_gather() {
    plan::StepPlan plan;
    for (const plan::Op op :
         {plan::Op::kForward, plan::Op::kReduce, plan::Op::kReduce, plan::Op::kGather}) {
        plan::Instruction& made = plan.instructions.emplace_back();
        made.op = op;
        made.bytes = Bytes{op == plan::Op::kGather ? 1'000'000 : 4'000'000};
    }
    return plan;
}

const std::vector<plan::InstructionSpan> kSpans = {{milliseconds(0), milliseconds(9)},
                                                   {milliseconds(1), milliseconds(3)},
                                                   {milliseconds(3), milliseconds(5)},
                                                   {milliseconds(5), milliseconds(6)}};

}  // namespace

TEST_CASE("operations are counted by kind and size, with their rates") {
    CommsLog log({true, false, false, {}}, 4, /*reduces_to_all=*/true);
    TrafficTable moved;
    moved.by_host[1][static_cast<size_t>(TrafficKind::kTensor)].sent = Bytes{77};
    CHECK(log.summary().empty());
    log.add(1, two_reduces_and_a_gather(), kSpans, moved);
    // 4 MB in 2 ms are 2 GB/s; sums that all of four ranks get pass 1.5 times. 1 MB in 1 ms is 1
    // GB/s; three quarters of a gather pass.
    CHECK(log.summary() ==
          "operation    bytes  count  ms in all  ms each  algbw GB/s  busbw GB/s\n"
          "reduce     4000000      2       4.00    2.000        2.00        3.00\n"
          "gather     1000000      1       1.00    1.000        1.00        0.75\n"
          "tensor          77");
}

TEST_CASE("only the operations that prof_ops names are logged") {
    CommsLog log({true, false, false, {TrafficKind::kGather}}, 2, false);
    log.add(1, two_reduces_and_a_gather(), kSpans, {});
    CHECK(log.summary().find("gather") != std::string::npos);
    CHECK(log.summary().find("reduce") == std::string::npos);
    CHECK(CommsLog::bus_factor(TrafficKind::kReduce, false, 4) == 0.75);
    CHECK(CommsLog::bus_factor(TrafficKind::kStage, false, 4) == 1);
}

}  // namespace dslaunch
