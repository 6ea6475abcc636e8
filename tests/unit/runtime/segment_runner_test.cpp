// Forward, recompute and backward, carried out by instructions. A second forward must not disturb
// the state.
#include "runtime/compute/segment_runner.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "graph/measure/measure.h"
#include "graph/segment/compute_context.h"
#include "plan/step/recompute_groups.h"
#include "support/catch.h"
#include "support/script_module.h"

namespace dslaunch {

using namespace graph;
using namespace plan;
using namespace runtime;
namespace {

struct StepOutcome {
    at::Tensor gradient;
    std::vector<at::Tensor> buffers;
    double loss = 0;
};

// Runs one micro step over a batch of ones. The model is cut into SEGMENTS, with GROUPS of
// recompute.
StepOutcome run_step(const std::string& text, const test::NamedTensors& buffers, int64_t segments,
                     int64_t groups) {
    const ComputeContext context(true);
    Model model = test::script_model(text, {{"w", test::ramp(4)}}, buffers);
    const SegmentedModel cut = SegmentedModel::make(model, {}, segments);
    const auto batch = [] { return std::vector<c10::IValue>{at::ones({2, 4})}; };
    const ModelInfo info = measure(cut, batch());
    SegmentRunner runner(cut, info, make_recompute_groups(info, groups),
                         [&](int64_t, int64_t) { return batch(); }, {});
    runner.begin_step(0, 1.0);
    const auto run = [&](Op op, size_t segment) {
        Instruction instruction;
        instruction.op = op;
        instruction.segment = static_cast<int>(segment);
        instruction.micro_step = 0;
        runner.run(instruction);
    };
    const auto recompute = make_recompute_groups(info, groups);
    run(Op::kLoad, 0);
    const size_t count = cut.segments().size();
    for (size_t s = 0; s < count; ++s) run(Op::kForward, s);
    size_t recomputed_from = count;
    for (size_t s = count; s-- > 0;) {
        for (const RecomputeGroup& group : recompute) {
            if (s + 1 != static_cast<size_t>(group.end) || s >= recomputed_from) continue;
            recomputed_from = static_cast<size_t>(group.begin);
            for (size_t r = recomputed_from; r <= s; ++r) run(Op::kRecompute, r);
        }
        if (info.segments[s].backward) run(Op::kBackward, s);
    }
    StepOutcome outcome{model.parameters()[0].tensor.grad().clone(), {}, runner.losses().at(0)};
    for (const ModelBuffer& buffer : model.buffers())
        outcome.buffers.push_back(buffer.tensor.clone());
    return outcome;
}

}  // namespace

TEST_CASE("an argument that forward writes in place is written once, recomputed or not") {
    const std::string text =
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    x.mul_(2.0)\n"
        "    y = x * self.w\n"
        "    return (y * y).sum()\n";
    for (const int64_t segments : {1, 2, 3})
        for (const int64_t groups : {0, 1}) {
            INFO(segments << " segments, " << groups << " groups");
            // Two rows of (2 w)^2: the gradient is 16 w.
            CHECK(at::equal(run_step(text, {}, segments, groups).gradient, 16 * test::ramp(4)));
        }
}

TEST_CASE(
    "a buffer that forward writes moves once, recomputed or not, and its backward is not "
    "disturbed") {
    // `seen` is saved by autograd (for the product with y) and written before that.
    const std::string text =
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    self.seen.add_(1.0)\n"
        "    y = torch.sin(x * self.w)\n"
        "    mean = torch.native_batch_norm(y, None, None, self.average, self.variance, True, 0.1, "
        "1e-5)[0]\n"
        "    return (mean * y + y * self.index[1]).sum()\n";
    const test::NamedTensors buffers = {{"seen", at::zeros({1})},
                                        {"average", at::zeros({4})},
                                        {"variance", at::ones({4})},
                                        {"index", at::tensor({2.0F, 3.0F})}};
    const StepOutcome plain = run_step(text, buffers, 1, 0);
    for (const int64_t segments : {1, 2, 4})
        for (const int64_t groups : {1, 2}) {
            const StepOutcome again = run_step(text, buffers, segments, groups);
            INFO(segments << " segments, " << groups << " groups");
            CHECK(at::equal(again.gradient, plain.gradient));
            CHECK(again.loss == plain.loss);
            for (size_t b = 0; b < plain.buffers.size(); ++b)
                CHECK(at::equal(again.buffers[b], plain.buffers[b]));
        }
    CHECK(plain.buffers[0].item<float>() == 1.0F);
}

TEST_CASE("a recompute reads buffers as the forward found them") {
    const std::string text =
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    y = x * self.w * (self.calls + 3.0)\n"
        "    self.calls.add_(1.0)\n"
        "    return (y * y).sum()\n";
    for (const int64_t segments : {1, 2})
        for (const int64_t groups : {0, 1}) {
            const StepOutcome step = run_step(text, {{"calls", at::zeros({1})}}, segments, groups);
            INFO(segments << " segments, " << groups << " groups");
            // Two rows of (3 w)^2: the gradient is 36 w.
            CHECK(at::allclose(step.gradient, 36 * test::ramp(4), 1e-6));
            CHECK(step.buffers[0].item<float>() == 1.0F);
        }
}

}  // namespace dslaunch
