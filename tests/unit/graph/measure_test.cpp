// Facts that one forward pass tells of a model: numbers that do not depend on where it is cut.
#include "graph/measure/measure.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <set>
#include <string>

#include "support/catch.h"
#include "support/fixtures.h"
#include "support/script_module.h"

namespace dslaunch {

using namespace graph;
using namespace plan;

namespace {
const std::set<std::string> kPictureModels = {"convnet", "exported-convnet", "image-text", "mlp",
                                              "views-inplace"};
}

TEST_CASE("classes of the loss and work of a model are the same however it is cut") {
    at::set_num_threads(1);
    for (const std::string& name : test::fixture_names()) {
        test::Fixture fixture = test::Fixture::load(name);
        // Pictures are told apart into ten classes, text into its 128 tokens (fixtures/README.md).
        const bool pictures = kPictureModels.count(name) == 1;
        const int64_t classes = pictures ? 10 : 128;
        const SegmentedModel one = fixture.cut(1);
        const auto arguments = fixture.batch(one);
        const int64_t flops = measure(one, arguments).forward_flops();
        CHECK(flops > 0);
        for (const int64_t count : test::segment_counts(one.cut_places())) {
            if (count > 13) break;
            INFO(name << " in " << count << " segments");
            const ModelInfo info = measure(fixture.cut(count), arguments);
            CHECK(info.loss_classes == classes);
            CHECK(info.forward_flops() == flops);
        }
    }
}

TEST_CASE("the peak of a backward has the dense gradient of an embedding, and no trace stays") {
    at::set_num_threads(1);
    Model model = test::script_model(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    y = torch.embedding(self.w, x)\n    return torch.exp(y).sum()\n",
        {{"w", at::zeros({1000, 64})}});
    const SegmentedModel segmented = SegmentedModel::make(model, {}, 2);
    REQUIRE(segmented.segments().size() == 2);
    const int64_t rows = 6 * 64 * 4;
    const ModelInfo info = measure(segmented, {at::arange(6, at::kLong)});
    const SegmentInfo& embedding = info.segments[0];
    const SegmentInfo& loss = info.segments[1];
    CHECK(embedding.output_bytes == Bytes{rows});
    CHECK(embedding.forward_peak == Bytes{rows});
    // Rows, their gradient, the gradient of the table; a scalar or an index may come on top.
    const int64_t least = 2 * rows + 1000 * 64 * 4;
    CHECK(embedding.backward_peak.value >= least);
    CHECK(embedding.backward_peak.value <= least + 512);
    // The exponential, which is kept, and the sum; then the sum's gradient spread over the rows
    // without memory of its own, and that of the rows.
    CHECK(loss.forward_peak.value >= rows);
    CHECK(loss.forward_peak.value <= rows + 64);
    CHECK(loss.backward_peak.value >= 2 * rows);
    CHECK(loss.backward_peak.value <= 2 * rows + 64);
    CHECK_FALSE(model.parameters()[0].tensor.grad().defined());
}

TEST_CASE("what is kept between the halves of a backward is what the weights wait with") {
    at::set_num_threads(1);
    Model model = test::script_model(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    h = torch.tanh(torch.matmul(x, self.a))\n"
        "    y = torch.tanh(torch.tanh(torch.tanh(torch.matmul(h, self.b))))\n"
        "    return y.sum()\n",
        {{"a", at::ones({64, 8})}, {"b", at::ones({8, 64})}});
    const SegmentedModel segmented = SegmentedModel::make(model, {}, 2);
    REQUIRE(segmented.segments().size() == 2);
    constexpr int64_t kNarrow = 6 * 8 * 4;
    constexpr int64_t kWide = 6 * 64 * 4;
    const std::vector<c10::IValue> arguments = {at::ones({6, 64})};
    CHECK(measure(segmented, arguments).segments[1].weight_half_bytes == Bytes{});
    const ModelInfo info = measure(segmented, arguments, /*split_backward=*/true);
    // The product keeps its operand if that is not the segment's input, and the gradient that came
    // to it; the whole backward keeps three times as much.
    const SegmentInfo& last = info.segments[1];
    CHECK(last.activation_bytes.value >= 3 * kWide);
    CHECK(last.weight_half_bytes.value >= kWide);
    CHECK(last.weight_half_bytes.value <= kWide + kNarrow + 512);
    // The other product keeps its operand, the batch, and the gradient that came to it.
    const SegmentInfo& first = info.segments[0];
    CHECK(first.weight_half_bytes.value >= kNarrow);
    CHECK(first.weight_half_bytes.value <= 2 * kNarrow + 512);
    for (const ModelParameter& parameter : model.parameters())
        CHECK_FALSE(parameter.tensor.grad().defined());
}

TEST_CASE("what forward returns is known as a loss or as none before the first step") {
    struct Row {
        const char* returned;
        int64_t numel;
        bool trains;
    };
    const Row rows[] = {{"y.mean()", 1, true},           {"y.mean().reshape(1)", 1, true},
                        {"y.mean(1)", 6, true},          {"y.mean().detach()", 1, false},
                        {"y.argmax(1).sum()", 1, false}, {"(y > 0.5).float().mean()", 1, false},
                        {"x.mean()", 1, false}};
    for (const Row& row : rows) {
        INFO(row.returned);
        Model model =
            test::script_model(std::string("def forward(self, x: Tensor) -> Tensor:\n"
                                           "    y = torch.matmul(x, self.w)\n    return ") +
                                   row.returned + "\n",
                               {{"w", test::ramp(12).reshape({4, 3})}});
        LossFacts loss;
        static_cast<void>(
            measure(SegmentedModel::make(model, {}, 1), {at::ones({6, 4})}, false, &loss));
        CHECK(loss.numel == row.numel);
        CHECK(loss.trains == row.trains);
    }
}

}  // namespace dslaunch
