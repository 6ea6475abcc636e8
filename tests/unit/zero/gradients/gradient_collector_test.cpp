// The hooks that move gradients into buckets, and the states of the flat optimizer.
#include "zero/gradients/gradient_collector.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include "device/host_device.h"
#include "support/catch.h"
#include "support/script_module.h"
#include "zero/states/shard_optimizer.h"

namespace dslaunch {

using namespace config;
using namespace graph;
using namespace kernels;
using namespace plan;
using namespace zero;
namespace {

// Two parameters of 3 and 2 elements in one bucket. Segments 0 and 1 read the first one.
struct Collected {
    Model model = test::script_model(
        "def forward(self, x: Tensor) -> Tensor:\n    return (self.a.sum() + self.b.sum()) * x\n",
        {{"a", test::ramp(3)}, {"b", test::ramp(2)}});
    FlatLayout layout;
    at::Tensor bucket = at::full({32}, 77.0F);
    std::unique_ptr<GradientCollector> collector;

    explicit Collected(int last_segment_of_a) {
        layout.slices = {{0, 0, 3, 0, last_segment_of_a}, {1, 16, 2, 1, 1}};
        layout.buckets = {{0, 32, 0, 0, 2}};
        layout.numel = layout.trained_numel = 32;
        layout.trained_slices = 2;
        layout.trained_buckets = 1;
        layout.slice_of_parameter = {0, 1};
        collector = std::make_unique<GradientCollector>(
            model, layout, std::vector<at::Tensor>{bucket.slice(0, 0, 3), bucket.slice(0, 16, 18)});
    }
    [[nodiscard]] at::Tensor a() const { return model.parameters()[0].tensor; }
    [[nodiscard]] at::Tensor b() const { return model.parameters()[1].tensor; }
    [[nodiscard]] std::vector<float> part(int64_t begin, int64_t end) const {
        const at::Tensor slice = bucket.slice(0, begin, end).contiguous();
        return {slice.const_data_ptr<float>(), slice.const_data_ptr<float>() + slice.numel()};
    }
};

}  // namespace

TEST_CASE("the first gradient of a generation overwrites, the next add, and .grad is let go") {
    Collected job(0);
    for (int generation = 0; generation < 2; ++generation) {
        job.collector->claim(job.layout.buckets[0]);
        (job.a() * at::tensor({1.0F, 2.0F, 3.0F})).sum().backward();
        CHECK(job.part(0, 3) == std::vector<float>{1, 2, 3});
        CHECK_FALSE(job.a().grad().defined());
        (job.a() * 10.0).sum().backward();
        CHECK(job.part(0, 3) == std::vector<float>{11, 12, 13});
    }
}

TEST_CASE("a slice without a gradient is zeroed and flagged when its bucket is complete") {
    Collected job(0);
    job.collector->claim(job.layout.buckets[0]);
    job.a().sum().backward();
    std::vector<float> used(2, -1);
    job.collector->complete(job.layout.buckets[0], used);
    CHECK(used == std::vector<float>{1, 0});
    CHECK(job.part(0, 3) == std::vector<float>{1, 1, 1});
    CHECK(job.part(16, 18) == std::vector<float>{0, 0});
    // The space between the slices belongs to no parameter.
    CHECK(job.part(3, 16) == std::vector<float>(13, 77));
}

TEST_CASE("a parameter of several segments sums one micro step before it is added") {
    Collected job(1);
    job.collector->claim(job.layout.buckets[0]);
    // In fp32, the sum 2^24 + 1 + 1 is 2^24 if it is added one by one, and 2^24 + 2 if the micro
    // step is summed first.
    const double big = 16777216.0;
    (job.a() * big).sum().backward();
    job.collector->end_segment(1);
    // In the first micro step the slice is empty, so a sum needs no memory beside it.
    CHECK(job.part(0, 3) == std::vector<float>(3, 16777216.0F));
    job.collector->end_segment(0);
    CHECK(job.part(0, 3) == std::vector<float>(3, 16777216.0F));
    job.a().sum().backward();
    job.collector->end_segment(1);
    job.a().sum().backward();
    job.collector->end_segment(0);
    CHECK(job.part(0, 3) == std::vector<float>(3, 16777218.0F));
}

TEST_CASE("a collector that is gone leaves the parameters' gradients to autograd") {
    Collected job(0);
    job.collector.reset();
    job.a().sum().backward();
    REQUIRE(job.a().grad().defined());
    CHECK(at::equal(job.a().grad(), at::ones({3})));
}

TEST_CASE("an optimizer holds as many fp32 states per parameter as its kind needs") {
    struct Row {
        OptimizerKind kind;
        double momentum;
        int64_t states;
    };
    for (const Row& row : {Row{OptimizerKind::kAdam, 0, 2}, Row{OptimizerKind::kAdamW, 0, 2},
                           Row{OptimizerKind::kSgd, 0, 0}, Row{OptimizerKind::kSgd, 0.9, 1},
                           Row{OptimizerKind::kAdagrad, 0, 1}, Row{OptimizerKind::kLion, 0, 1}}) {
        OptimizerConfig config;
        config.kind = row.kind;
        config.momentum = row.momentum;
        CHECK(ShardOptimizer::states_per_parameter(config) == row.states);
        config.amsgrad = row.states == 2;
        if (config.amsgrad) CHECK(ShardOptimizer::states_per_parameter(config) == 3);
    }
}

TEST_CASE("threads that share an update change no bit of it") {
    constexpr size_t kNumel = 5 * ThreadTeam::kBlockNumel + 1001;
    for (const OptimizerKind kind :
         {OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kSgd, OptimizerKind::kAdagrad,
          OptimizerKind::kLion}) {
        OptimizerConfig config;
        config.kind = kind;
        config.weight_decay = 0.1;
        config.momentum = 0.9;
        config.initial_accumulator_value = 0.5;
        const auto train = [&](int threads) {
            device::HostQueue queue(threads);
            ShardOptimizer optimizer(config, queue);
            std::vector<float> first(kNumel, ShardOptimizer::initial_state(config));
            std::vector<float> second(kNumel, 0);
            std::vector<float> parameters(kNumel), gradients(kNumel);
            for (size_t i = 0; i < kNumel; ++i) {
                parameters[i] = std::sin(static_cast<float>(i));
                gradients[i] = std::cos(static_cast<float>(i) * 3);
            }
            const float* const source = gradients.data();
            FlatRange range;
            range.numel = kNumel;
            range.gradients = {&source, 1};
            range.parameters = parameters;
            range.first = first;
            range.second = second;
            for (int64_t step = 1; step <= 3; ++step) optimizer.update(range, 1e-2, step);
            return parameters;
        };
        const std::vector<float> alone = train(1);
        CHECK(alone.back() != std::sin(static_cast<float>(kNumel - 1)));
        INFO("optimizer " << static_cast<int>(kind));
        for (const int threads : {2, 3, 7}) CHECK(train(threads) == alone);
    }
}

TEST_CASE("an update of a piece moves that piece and its states alone") {
    OptimizerConfig config;
    config.kind = OptimizerKind::kAdamW;
    config.lr = 0.5;
    device::HostQueue queue(1);
    ShardOptimizer optimizer(config, queue);
    std::vector<float> parameters(48, 1.0F), gradients(48, 4.0F), first(48), second(48);
    const float* const source = gradients.data() + 16;
    FlatRange range;
    range.numel = 16;
    range.gradients = {&source, 1};
    range.parameters = std::span(parameters).subspan(16, 16);
    range.first = std::span(first).subspan(16, 16);
    range.second = std::span(second).subspan(16, 16);
    optimizer.update(range, config.lr, 1);
    for (size_t i = 0; i < 48; ++i) {
        const bool inside = i >= 16 && i < 32;
        // The first Adam step moves by lr against the gradient's sign; first and second moments are
        // 0.1 g and 0.001 g^2.
        CHECK(parameters[i] == Approx(inside ? 0.5 : 1.0).epsilon(1e-6));
        CHECK(first[i] == Approx(inside ? 0.4 : 0.0).epsilon(1e-6));
        CHECK(second[i] == Approx(inside ? 0.016 : 0.0).epsilon(1e-6));
    }
}

}  // namespace dslaunch
