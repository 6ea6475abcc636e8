// A teacher in the graph, compared with the same loss written with PyTorch's operators, and layers
// that a model takes from a teacher.
#include "graph/lower/distill.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>

#include "base/error.h"
#include "graph/compress/teacher_layers.h"
#include "graph/lower/lower.h"
#include "graph/segment/compute_context.h"
#include "graph/segment/segmented_model.h"
#include "support/catch.h"
#include "support/script_module.h"
#include "support/text_tools.h"

namespace dslaunch::distill_tests {

using namespace graph;
using config::DistillKind;
using test::wave;

namespace {

constexpr const char* kForward =
    "def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:\n"
    "    h = torch.tanh(torch.embedding(self.table, tokens))\n"
    "    return torch.cross_entropy_loss(torch.linear(h, self.head), targets)\n";

test::NamedTensors weights(double start, int64_t width = 6) {
    return {{"table", wave({5, width}, start)}, {"head", wave({4, width}, start + 1)}};
}

at::Tensor tokens() {
    return at::arange(5, at::kLong);
}

at::Tensor targets() {
    return at::tensor({1, -100, 3, 0, -100}, at::kLong);  // three count
}

std::string teacher_in(const test::TemporaryFolder& folder, const test::NamedTensors& parameters) {
    const std::string path = folder.path() + "/teacher.pt";
    test::script_module(kForward, parameters).save(path);
    return path;
}

LowerOptions with(const std::string& teacher, DistillKind kind, double temperature = 1) {
    LowerOptions options;
    options.compression.distill = {teacher, kind, temperature, 0.25};
    return options;
}

struct Step {
    double loss = 0;
    std::vector<at::Tensor> gradients;  // of table and head
};

Step step(Model& model, const LowerOptions& options, int64_t segments = 1) {
    const SegmentedModel segmented = SegmentedModel::make(model, options, segments);
    const ComputeContext context(true);
    std::vector<Boundary> boundaries;
    std::vector<c10::IValue> values = segmented.first_inputs({tokens(), targets()});
    for (size_t s = 0; s < segmented.segments().size(); ++s) {
        boundaries.push_back(segmented.forward(s, values, {}));
        values = boundaries.back().values;
    }
    Step made{loss_of(boundaries.back()), {}};
    SegmentedModel::backward_loss(boundaries.back(), 1);
    for (size_t s = boundaries.size() - 1; s-- > 0;) SegmentedModel::backward(boundaries[s]);
    for (const ModelParameter& parameter : model.parameters()) {
        at::Tensor tensor = parameter.tensor;
        if (tensor.grad().defined()) made.gradients.push_back(tensor.grad().clone());
        tensor.mutable_grad().reset();
    }
    return made;
}

// Returns the loss and gradients of the definition, with autograd.
Step expected(DistillKind kind, double temperature, int64_t reduction) {
    const at::Tensor table = wave({5, 6}, 1).set_requires_grad(true);
    const at::Tensor head = wave({4, 6}, 2).set_requires_grad(true);
    const auto hidden = [](const at::Tensor& from) {
        return at::tanh(at::embedding(from, tokens()));
    };
    const at::Tensor mine = hidden(table), theirs = hidden(wave({5, 6}, 7));
    const at::Tensor logits = at::linear(mine, head);
    const at::Tensor answers = at::linear(theirs, wave({4, 6}, 8));
    const at::Tensor counts = (targets() != -100).to(at::kFloat);
    const at::Tensor logs = at::log_softmax(logits / temperature, -1);
    const at::Tensor of_teacher = at::log_softmax(answers / temperature, -1);
    const at::Tensor each =
        kind == DistillKind::kLogits
            ? (of_teacher.exp() * (of_teacher - logs)).sum(-1) * (temperature * temperature)
            : (mine - theirs).square().mean(-1);
    const double count = reduction == 1 ? 3 : 1;
    const at::Tensor loss = at::cross_entropy_loss(logits, targets(), {}, reduction) * 0.75 +
                            (each * counts).sum() / count * 0.25;
    loss.backward();
    return {loss.item<double>(), {table.grad(), head.grad()}};
}

void check_same(const Step& found, const Step& wanted) {
    CHECK(found.loss == Approx(wanted.loss).epsilon(1e-6));
    REQUIRE(found.gradients.size() == 2);
    for (size_t i = 0; i < 2; ++i) {
        INFO(found.gradients[i] << "\n" << wanted.gradients[i]);
        CHECK(found.gradients[i].allclose(wanted.gradients[i], 1e-5, 1e-7));
    }
}

}  // namespace

TEST_CASE("a teacher's answers and hidden values are a part of the loss and its gradients") {
    const test::TemporaryFolder folder;
    const std::string teacher = teacher_in(folder, weights(7));
    for (const DistillKind kind : {DistillKind::kLogits, DistillKind::kHidden})
        for (const double temperature : {1.0, 2.5})
            for (const int64_t segments : {1, 3})
                for (const bool sums : {false, true}) {
                    INFO(int(kind) << " " << temperature << " " << segments << " " << sums);
                    Model model = test::script_model(kForward, weights(1));
                    LowerOptions options = with(teacher, kind, temperature);
                    if (sums) options.loss.mean = config::LossMean::kToken;
                    check_same(step(model, options, segments),
                               expected(kind, temperature, sums ? 2 : 1));
                    CHECK(model.parameters().size() == 4);
                    CHECK(model.parameters()[2].name == "teacher.table");
                    CHECK(model.parameters()[2].is_helper);
                    CHECK_FALSE(model.parameters()[2].tensor.requires_grad());
                }
}

TEST_CASE("a teacher's classes may be in dimension 1, with targets of two or three dimensions") {
    // [1, 4, 5] with [1, 5], and [1, 4, 5, 1] with [1, 5, 1]: the same rows as [5, 4] with [5].
    const auto with_loss = [](const std::string& loss) {
        return "def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:\n"
               "    h = torch.tanh(torch.embedding(self.table, tokens))\n"
               "    y = torch.linear(h, self.head).unsqueeze(0).transpose(1, 2)\n"
               "    return torch.cross_entropy_loss(" +
               loss + ")\n";
    };
    const test::TemporaryFolder folder;
    for (const std::string& text :
         {with_loss("y, targets.unsqueeze(0)"),
          with_loss("y.unsqueeze(-1), targets.unsqueeze(0).unsqueeze(-1)")}) {
        INFO(text);
        const std::string path = folder.path() + "/teacher.pt";
        test::script_module(text, weights(7)).save(path);
        Model model = test::script_model(text, weights(1));
        check_same(step(model, with(path, DistillKind::kLogits, 2)),
                   expected(DistillKind::kLogits, 2, 1));
    }
}

TEST_CASE("a teacher of rows that have no target each is refused by name") {
    const test::TemporaryFolder folder;
    const auto refusal = [&](const std::string& last, DistillKind kind) {
        const std::string text =
            "def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:\n"
            "    h = torch.tanh(torch.embedding(self.table, tokens))\n"
            "    y = torch.linear(h, self.head)\n"
            "    return torch.cross_entropy_loss(" +
            last + ")\n";
        const std::string path = folder.path() + "/teacher.pt";
        test::script_module(text, weights(7)).save(path);
        Model model = test::script_model(text, weights(1));
        return test::error_of(ExitCode::kInput,
                              [&] { static_cast<void>(step(model, with(path, kind))); });
    };
    for (const DistillKind kind : {DistillKind::kLogits, DistillKind::kHidden})
        CHECK_THAT(refusal("y, torch.one_hot(targets % 4, 4).float()", kind),
                   Catch::Contains("the targets of the model's cross entropy are probabilities"));
    CHECK_THAT(refusal("y[:-1], targets[1:]", DistillKind::kHidden),
               Catch::Contains("has 5 rows of outputs, but 4 targets"));
}

TEST_CASE("a teacher takes no part in evaluation, nor with a weight of zero") {
    const test::TemporaryFolder folder;
    const std::string teacher = teacher_in(folder, weights(7));
    Model plain = test::script_model(kForward, weights(1));
    const Step wanted = step(plain, {});
    LowerOptions options = with(teacher, DistillKind::kLogits);
    options.trains = false;
    Model model = test::script_model(kForward, weights(1));
    check_same(step(model, options), wanted);
    options.trains = true;
    options.compression.distill.weight = 0;
    check_same(step(model, options), wanted);
    CHECK(model.parameters().size() == 2);
}

TEST_CASE("a teacher that cannot teach is refused by name") {
    const test::TemporaryFolder folder;
    const auto refusal = [&](const std::string& forward, const test::NamedTensors& parameters,
                             const test::NamedTensors& mine) {
        const std::string path = folder.path() + "/teacher.pt";
        test::script_module(forward, parameters).save(path);
        Model model = test::script_model(kForward, mine);
        return test::error_of(ExitCode::kInput, [&] {
            static_cast<void>(step(model, with(path, DistillKind::kHidden)));
        });
    };
    CHECK_THAT(refusal("def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:\n"
                       "    h = torch.embedding(self.table, tokens)\n"
                       "    return torch.cross_entropy_loss(torch.linear(h, self.head), labels)\n",
                       weights(7), weights(1)),
               Catch::Contains("the teacher takes tokens, labels, but the model takes tokens, "
                               "targets"));
    CHECK_THAT(refusal("def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:\n"
                       "    h = torch.embedding(self.table, tokens)\n"
                       "    return torch.linear(h, self.head).sum() + targets.sum()\n",
                       weights(7), weights(1)),
               Catch::Contains("the loss of the teacher must be one cross entropy"));
    CHECK_THAT(
        refusal(kForward, weights(7, 8), weights(1)),
        Catch::Contains("the teacher has 8 inputs of its output layer, but the model has 6"));
}

TEST_CASE("layer_reduction gives a model the layers of its teacher that it names") {
    const auto layers = [](int count, double start) {
        torch::jit::Module model("Layers"), list("List");
        for (int i = 0; i < count; ++i) {
            torch::jit::Module layer("Layer" + std::to_string(i));
            layer.register_parameter("weight", wave({2, 3}, start + i).set_requires_grad(true),
                                     false);
            list.register_module(std::to_string(i), layer);
        }
        model.register_module("layers", list);
        model.register_parameter("head", wave({2}, start + 50).set_requires_grad(true), false);
        model.define("def forward(self, x: Tensor) -> Tensor:\n    return x.sum()\n");
        return model;
    };
    const test::TemporaryFolder folder;
    const std::string teacher = folder.path() + "/teacher.pt";
    layers(5, 100).save(teacher);
    Model model = Model::adopt(layers(2, 0));
    config::LayerReduction reduction{true, "layers", {1, 4}, {"head"}};
    take_teacher_layers(model, reduction, teacher);
    for (const ModelParameter& parameter : model.parameters()) {
        const double start = parameter.name == "head"              ? 150
                             : parameter.name == "layers.0.weight" ? 101
                                                                   : 104;
        INFO(parameter.name);
        CHECK(parameter.tensor.equal(wave(parameter.tensor.sizes().vec(), start)));
        CHECK(parameter.tensor.requires_grad());
    }
    const auto refusal = [&](ExitCode code, const config::LayerReduction& wrong) {
        Model fresh = Model::adopt(layers(2, 0));
        return test::error_of(code, [&] { take_teacher_layers(fresh, wrong, teacher); });
    };
    CHECK_THAT(refusal(ExitCode::kConfig, {true, "layers", {1}, {}}),
               Catch::Contains("it names 1 layers, but the model has more: `layers.1` exists"));
    CHECK_THAT(refusal(ExitCode::kConfig, {true, "layers", {1, 5}, {}}),
               Catch::Contains("the teacher has no module `layers.5`"));
    CHECK_THAT(refusal(ExitCode::kConfig, {true, "blocks", {1, 2}, {}}),
               Catch::Contains("the model has no module `blocks.0`"));
    CHECK_THAT(refusal(ExitCode::kConfig, {true, "layers", {1, 2}, {"tail"}}),
               Catch::Contains("other_module_name: the model has no module `tail`"));
}

}  // namespace dslaunch::distill_tests
