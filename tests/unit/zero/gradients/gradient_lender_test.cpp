// Gradients that are computed in their slices have the bits of copied ones, whatever autograd does
// with the lent memory.
#include "zero/gradients/gradient_lender.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/custom_function.h>

#include "graph/measure/measure.h"
#include "graph/segment/compute_context.h"
#include "plan/step/recompute_groups.h"
#include "runtime/compute/segment_runner.h"
#include "support/catch.h"
#include "support/fixtures.h"
#include "support/script_module.h"
#include "zero/gradients/gradient_collector.h"

namespace dslaunch {

using namespace graph;
using namespace plan;
using namespace runtime;
using namespace zero;
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A model's gradients in one flat tensor, step by step, without an optimizer.
class Gradients {
  public:
    Gradients(SegmentedModel segmented, const SegmentRunner::TakeBatch& batch, bool lend,
              int64_t recompute_groups = 0, int accumulation_steps = 1)
        : segmented_(std::move(segmented)),
          info_(measure(segmented_, batch(0, 0))),
          layout_(make_flat_layout(info_, {1 << 30, 1})),
          groups_(make_recompute_groups(info_, recompute_groups)),
          flat_(at::empty({layout_.numel})),
          collector_(segmented_.model(), layout_, views()),
          runner_(segmented_, info_, groups_, batch, {1, accumulation_steps}),
          lend_(lend),
          accumulation_steps_(accumulation_steps) {}

    // Returns the gradients of all parameters, then the flags of the used ones. Space between
    // slices is zero.
    at::Tensor step(int64_t step) {
        const ComputeContext context(true);
        flat_.zero_();
        for (const Bucket& bucket : layout_.buckets) collector_.claim(bucket);
        runner_.begin_step(step, 1.0);
        for (int m = 0; m < accumulation_steps_; ++m) micro_step(m);
        std::vector<float> used(layout_.slices.size());
        for (const Bucket& bucket : layout_.buckets)
            collector_.complete(bucket,
                                std::span(used).subspan(
                                    static_cast<size_t>(bucket.first_slice),
                                    static_cast<size_t>(bucket.end_slice - bucket.first_slice)));
        return at::cat({flat_, at::tensor(used)});
    }
    [[nodiscard]] int64_t lent_bytes() const { return collector_.lent_bytes(); }
    [[nodiscard]] int64_t copied_bytes() const { return collector_.copied_bytes(); }

  private:
    [[nodiscard]] std::vector<at::Tensor> views() const {
        std::vector<at::Tensor> views;
        for (const ParameterSlice& slice : layout_.slices) {
            const at::Tensor& parameter = segmented_.model().parameters()[slice.parameter].tensor;
            views.push_back(
                flat_.as_strided(parameter.sizes(), parameter.strides(), slice.offset_numel));
        }
        return views;
    }
    void micro_step(int m) {
        const auto count = static_cast<int>(segmented_.segments().size());
        runner_.run(instruction(Op::kLoad, 0, m));
        for (int k = 0; k < count; ++k) runner_.run(instruction(Op::kForward, k, m));
        for (int k = count - 1; k >= 0; --k) {
            if (!info_.segments[k].backward) continue;
            for (const RecomputeGroup& group : groups_)
                for (int r = group.begin; k + 1 == group.end && r < group.end; ++r)
                    runner_.run(instruction(Op::kRecompute, r, m));
            {
                const LendingScope lending(lend_ ? &collector_.lender() : nullptr);
                runner_.run(instruction(Op::kBackward, k, m));
            }
            collector_.end_segment(k);
        }
    }
    static Instruction instruction(Op op, int segment, int micro_step) {
        Instruction made;
        made.op = op;
        made.segment = segment;
        made.micro_step = micro_step;
        return made;
    }

    SegmentedModel segmented_;
    ModelInfo info_;
    FlatLayout layout_;
    std::vector<RecomputeGroup> groups_;
    at::Tensor flat_;
    GradientCollector collector_;
    SegmentRunner runner_;
    bool lend_;
    int accumulation_steps_;
};

struct FixtureCase {
    int64_t recompute_groups = 0;
    int accumulation_steps = 1;
};

// Returns the share of gradient bytes that were lent in the steps after the first two. There are
// four steps.
double compare(const std::string& name, const FixtureCase& job) {
    // With such small matrices, several threads would only wait for each other.
    at::set_num_threads(1);
    std::vector<at::Tensor> results[2];
    double share = 0;
    for (const bool lend : {false, true}) {
        test::Fixture fixture = test::Fixture::load(name);
        const SegmentedModel segmented = fixture.cut(4);
        Gradients gradients(
            segmented,
            [&](int64_t step, int64_t m) { return fixture.batch(segmented, (step + m) % 2); }, lend,
            job.recompute_groups, job.accumulation_steps);
        for (int step = 0; step < 2; ++step) results[lend].push_back(gradients.step(step));
        const int64_t lent = gradients.lent_bytes();
        const int64_t copied = gradients.copied_bytes();
        for (int step = 2; step < 4; ++step) results[lend].push_back(gradients.step(step));
        if (!lend) CHECK(gradients.lent_bytes() == 0);
        const auto lent_now = static_cast<double>(gradients.lent_bytes() - lent);
        share = lent_now / (lent_now + static_cast<double>(gradients.copied_bytes() - copied));
    }
    for (size_t step = 0; step < results[0].size(); ++step) {
        INFO("step " << step);
        CHECK(at::equal(results[0][step], results[1][step]));
    }
    return share;
}

constexpr int64_t kLentNumel = 32;

enum class Way { kPlain, kSwapped, kShared, kFreedEarly, kUndefined };

// The way in which Shift's backward allocates its two gradients.
Way way = Way::kPlain;

// x + p, with a backward that allocates as `way` says. In the plain way, p's gradient is the first
// allocation.
struct Shift : torch::autograd::Function<Shift> {
    static at::Tensor forward(AutogradContext*, const at::Tensor& x, const at::Tensor& p) {
        return x + p;
    }
    static variable_list backward(AutogradContext*, variable_list gradients) {
        const at::Tensor& gradient = gradients[0];
        at::Tensor first = at::empty_like(gradient);
        if (way == Way::kFreedEarly || way == Way::kUndefined) {
            first.fill_(-1);
            first.reset();
        }
        if (way == Way::kUndefined) return {gradient.clone(), at::Tensor()};
        if (way == Way::kFreedEarly) return {gradient.clone(), gradient.clone()};
        first.copy_(gradient);
        if (way == Way::kSwapped) return {first, gradient.clone()};
        if (way == Way::kShared) return {first.view({kLentNumel / 8, 8}), first};
        return {gradient.clone(), first};
    }
};

// One parameter of 4 x 8 in a slice, and an input that wants its gradient too.
struct Shifted {
    Model model = test::script_model("def forward(self, x: Tensor) -> Tensor:\n    return x\n",
                                     {{"p", test::ramp(kLentNumel).view({kLentNumel / 8, 8})}});
    FlatLayout layout;
    at::Tensor bucket = at::empty({kLentNumel});
    std::unique_ptr<GradientCollector> collector;
    at::Tensor x = at::ones({kLentNumel / 8, 8}).set_requires_grad(true);
    at::Tensor factor = (at::arange(kLentNumel, at::kFloat) + 1).view({kLentNumel / 8, 8});

    Shifted() {
        layout.slices = {{0, 0, kLentNumel, 0, 0}};
        layout.buckets = {{0, kLentNumel, 0, 0, 1}};
        layout.numel = layout.trained_numel = kLentNumel;
        layout.trained_buckets = layout.trained_slices = 1;
        layout.slice_of_parameter = {0};
        collector = std::make_unique<GradientCollector>(
            model, layout, std::vector<at::Tensor>{bucket.view({kLentNumel / 8, 8})});
    }

    // Returns true if p got a gradient. x's and p's gradients must be FACTOR.
    bool backward(Way chosen) {
        way = chosen;
        collector->claim(layout.buckets[0]);
        at::Tensor loss = (Shift::apply(x, model.parameters()[0].tensor) * factor).sum();
        {
            const LendingScope lending(&collector->lender());
            loss.backward();
            loss.reset();
            keep_in_own_memory(x.grad());
        }
        collector->end_segment(0);
        std::vector<float> used(1);
        collector->complete(layout.buckets[0], used);
        if (used[0] > 0) CHECK(at::equal(bucket.view_as(factor), factor));
        // The next generation must not change the gradient that was passed on.
        bucket.fill_(99);
        CHECK(at::equal(x.grad(), factor));
        x.mutable_grad().reset();
        return used[0] > 0;
    }
};

}  // namespace

TEST_CASE("lent and copied gradients of every fixture have the same bits") {
    for (const std::string& name : test::fixture_names()) {
        for (const FixtureCase& job : {FixtureCase{0, 1}, FixtureCase{0, 3}, FixtureCase{2, 2}}) {
            // A second forward would write a written attribute twice.
            if (name == "state" && job.recompute_groups > 0) continue;
            INFO(name << ", " << job.recompute_groups << " recompute groups, "
                      << job.accumulation_steps << " micro steps");
            compare(name, job);
        }
    }
}

TEST_CASE("most gradient bytes of transformers are lent") {
    for (const char* name : {"gpt", "gpt2", "llama", "qwen2", "bert"}) {
        INFO(name);
        // Some gradients are not lent: biases are summed outside of any node, tied weights are used
        // by two segments.
        CHECK(compare(name, {}) > 0.5);
    }
}

TEST_CASE("a lent block that does not become the gradient harms nobody") {
    for (const Way strange : {Way::kSwapped, Way::kShared, Way::kFreedEarly, Way::kUndefined}) {
        INFO("way " << static_cast<int>(strange));
        Shifted job;
        for (int i = 0; i < 2; ++i) CHECK(job.backward(Way::kPlain));
        CHECK(job.collector->lent_bytes() == 0);
        CHECK(job.backward(Way::kPlain));
        CHECK(job.collector->lent_bytes() == kLentNumel * 4);
        for (int i = 0; i < 4; ++i) CHECK(job.backward(strange) == (strange != Way::kUndefined));
        for (int i = 0; i < 3; ++i) CHECK(job.backward(Way::kPlain));
        CHECK(job.collector->lent_bytes() >= 2 * kLentNumel * 4);
    }
}

TEST_CASE("a parameter never gets the memory of its twin") {
    // The data decides which of two parameters is used. They have the same shape, and their uses
    // allocate equally.
    const char* const text =
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    h = torch.tanh(x)\n"
        "    if bool(x[0, 0] > 0.0):\n"
        "        h = torch.matmul(h, self.a)\n"
        "    else:\n"
        "        h = torch.matmul(h, self.b)\n"
        "    return (h * h).sum()\n";
    const float signs[] = {1, 1, 1, -1, 1, -1, -1, -1, -1, 1};
    std::vector<at::Tensor> results[2];
    for (const bool lend : {false, true}) {
        Model model = test::script_model(
            text, {{"a", test::ramp(48).view({6, 8})}, {"b", test::ramp(48).view({6, 8}) * 3}});
        Gradients gradients(
            SegmentedModel::make(model, {}, 1),
            [&](int64_t step, int64_t) -> std::vector<c10::IValue> {
                // Rows change between steps too.
                const int64_t rows = 1 + step % 3;
                return {test::ramp(rows * 6).view({rows, 6}) * signs[step]};
            },
            lend);
        for (int step = 0; step < 10; ++step) results[lend].push_back(gradients.step(step));
        CHECK((gradients.lent_bytes() > 0) == lend);
    }
    for (size_t step = 0; step < 10; ++step) {
        INFO("step " << step);
        CHECK(at::equal(results[0][step], results[1][step]));
        // The flags come last: a, b.
        CHECK(results[1][step][-2].item<float>() == (signs[step] > 0 ? 1 : 0));
        CHECK(results[1][step][-1].item<float>() == (signs[step] > 0 ? 0 : 1));
    }
}

TEST_CASE("memory is lent to the thread in the scope, and returned when its tensors are gone") {
    struct Once final : MemoryLender {
        alignas(64) float memory[16] = {};
        bool given = false;
        void* lend(size_t bytes) override {
            if (given || bytes != sizeof memory) return nullptr;
            given = true;
            return memory;
        }
        void note(const void*) override {}
    };
    Once lender;
    at::Tensor outside = at::empty({16});
    CHECK_FALSE(lender.given);
    at::Tensor first, second;
    {
        const LendingScope lending(&lender);
        first = at::full({16}, 3.0F);
        second = at::full({16}, 4.0F);
    }
    CHECK(first.data_ptr() == lender.memory);
    CHECK(second.data_ptr() != lender.memory);
    const at::Tensor alias = first.slice(0, 4, 8);
    CHECK(is_lent(lender.memory));
    first.reset();
    CHECK(is_lent(lender.memory));
    keep_in_own_memory(alias);
    CHECK_FALSE(is_lent(lender.memory));
    lender.memory[4] = 9;
    CHECK(at::equal(alias, at::full({4}, 3.0F)));
}

}  // namespace dslaunch
