// Lowering and cutting of modules that are written here: errors, defaults, states, and places where
// no cut is allowed.
#include "graph/lower/lower.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include "base/error.h"
#include "graph/segment/cut.h"
#include "support/catch.h"
#include "support/fixtures.h"
#include "support/script_module.h"
#include "support/script_names.h"
#include "support/text_tools.h"
#include "support/whole_run.h"

namespace dslaunch {

using namespace config;
using namespace graph;
using namespace plan;
namespace {

using Catch::Contains;
using test::ramp;
using test::run_segments;
using test::script_model;

std::string lower_error(const std::string& text, const LowerOptions& options) {
    Model model = script_model(text, {{"w", ramp(4)}});
    return test::error_of(ExitCode::kInput, [&] { static_cast<void>(lower(model, options)); });
}

LowerOptions with_loss(LossKind kind) {
    LowerOptions options;
    options.loss.kind = kind;
    options.loss.target = "y";
    return options;
}

LowerOptions with_arguments(std::vector<std::string> names) {
    LowerOptions options;
    options.arguments = std::move(names);
    return options;
}

int64_t devices_in(const torch::jit::Block& block, c10::Device device) {
    int64_t found = 0;
    for (const torch::jit::Node* node : block.nodes()) {
        for (const torch::jit::Block* inner : node->blocks()) found += devices_in(*inner, device);
        for (const torch::jit::Value* input : node->inputs()) {
            if (input->node()->kind() != c10::prim::Constant ||
                input->type()->kind() != c10::TypeKind::DeviceObjType)
                continue;
            found += torch::jit::toIValue(input)->toDevice() == device ? 1 : 0;
        }
    }
    return found;
}

}  // namespace

TEST_CASE("what cannot be lowered is refused with the name and place of what is wrong") {
    struct Row {
        std::string text;
        LowerOptions options;
        std::string message;
    };
    const std::string two =
        "def forward(self, x: Tensor, y: Tensor) -> Tensor:\n    return (x * self.w * y).sum()\n";
    const Row rows[] = {
        {two, with_arguments({"x", "z"}), "forward has no argument `z`; it takes: x, y"},
        {two, with_arguments({"x"}), "forward's argument `y` has no default"},
        {"def forward(self, x: Tensor):\n    return {\"a\": x, \"b\": self.w}\n",
         {},
         "forward returns `a`, `b`, but none of them is named `loss`; return only the loss, or "
         "give it this name"},
        {"def forward(self, x: Tensor) -> Tuple[int, Tensor]:\n    return x.size(0), self.w\n",
         {},
         "forward returns Tuple[int, Tensor], not a loss"},
        {"def forward(self, x: Tensor) -> int:\n    return x.size(0)\n",
         {},
         "forward returns int, not a loss"},
        {"def forward(self, x: Tensor):\n    return {\"a\": x, \"b\": self.w}\n",
         with_loss(LossKind::kMse),
         "none of them is named `logits`; return only the model's output, or give it this name"},
        {"def forward(self, x: Tensor) -> List[Tensor]:\n    return [x, self.w]\n",
         with_loss(LossKind::kMse),
         "the loss in the config (dslaunch.loss.name) needs a single tensor"},
    };
    for (const Row& row : rows) {
        const std::string message = lower_error(row.text, row.options);
        INFO(message);
        CHECK(message.find(row.message) != std::string::npos);
    }
}

TEST_CASE("an attribute that a loop or a branch writes is refused by its path") {
    for (const std::string body :
         {"    for i in range(x.size(0)):\n        self.seen = self.seen + x.sum()\n",
          "    if bool(x.sum() > 0):\n        self.seen = x.sum()\n"}) {
        torch::jit::Module module =
            test::script_module("def none(self) -> None:\n    pass\n", {{"w", ramp(4)}});
        module.register_attribute("seen", c10::TensorType::get(), at::zeros({}));
        module.define("def forward(self, x: Tensor) -> Tensor:\n" + std::string(body) +
                      "    return (x * self.w).sum() + self.seen\n");
        Model model = Model::adopt(module);
        CHECK_THROWS_WITH(static_cast<void>(lower(model, {})),
                          Catch::Contains("attribute `seen` is written inside a loop or a branch"));
    }
}

TEST_CASE("an argument that the data do not supply keeps its default") {
    Model model = script_model(
        "def forward(self, x: Tensor, scale: float = 3.0) -> Tensor:\n    return (x * "
        "self.w).sum() * scale\n",
        {{"w", ramp(4)}});
    const SegmentedModel cut = SegmentedModel::make(model, {}, 1);
    REQUIRE(cut.arguments() == std::vector<std::string>{"x"});
    // 3 * sum(i / 4, i = 1..4) = 7.5, and the gradient of each weight is 3.
    const test::RunResult run = run_segments(cut, {at::ones({4})}, {}, false);
    CHECK(run.loss == 7.5);
    CHECK(at::equal(run.gradients.at("w"), at::full({4}, 3.0F)));
}

// Each forward computes x * w, and returns more than that, or the same in another form.
TEST_CASE("of a tuple or a dict that forward returns, the loss or the logits is taken") {
    const std::string sum = "    product = x * self.w\n    loss = product.sum()\n";
    struct Row {
        std::string text;
        LossKind loss;
        std::string choice;
    };
    const Row rows[] = {
        {"def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:\n" + sum +
             "    return loss, product\n",
         LossKind::kModel, "the first of the 2 values that forward returns"},
        {"def forward(self, x: Tensor) -> Dict[str, Tensor]:\n" + sum +
             "    return {\"logits\": product, \"loss\": loss}\n",
         LossKind::kModel, "the value `loss` that forward returns"},
        {"def forward(self, x: Tensor) -> Dict[str, Tensor]:\n" + sum +
             "    out = {\"logits\": product}\n    out[\"loss\"] = loss\n    return out\n",
         LossKind::kModel, "the value `loss` that forward returns"},
        {"def forward(self, x: Tensor) -> Dict[str, Tensor]:\n" + sum +
             "    return {\"hidden\": loss, \"logits\": product}\n",
         LossKind::kMse, "the value `logits` that forward returns"},
        {"def forward(self, x: Tensor) -> Dict[str, Tensor]:\n" + sum +
             "    return {\"out\": product}\n",
         LossKind::kMse, "the value `out` that forward returns"},
        {"def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:\n" + sum +
             "    return product, loss\n",
         LossKind::kMse, "the first of the 2 values that forward returns"},
    };
    for (const Row& row : rows) {
        INFO(row.text);
        Model model = script_model(row.text, {{"w", at::full({4}, 2.0)}});
        LowerOptions options = with_loss(row.loss);
        if (row.loss == LossKind::kModel) options.loss.target = "";
        const SegmentedModel cut = SegmentedModel::make(model, options, 1);
        CHECK(cut.lowered().output_choice == row.choice);
        std::vector<c10::IValue> inputs = {at::ones({4})};
        if (row.loss == LossKind::kMse) inputs.emplace_back(at::zeros({4}));
        // The sum of four twos, or their mean square.
        const double expected = row.loss == LossKind::kMse ? 4.0 : 8.0;
        CHECK(run_segments(cut, inputs, {}, false).loss == expected);
    }
}

TEST_CASE("a dict of tensors that forward takes becomes the tensors that it reads") {
    Model model = script_model(
        "def forward(self, batch: Dict[str, Tensor], scale: Tensor) -> Tensor:\n"
        "    return (batch[\"x\"] * self.w * scale).sum() + batch[\"bias\"].sum() + "
        "batch[\"x\"].sum()\n",
        {{"w", at::full({4}, 2.0)}});
    const SegmentedModel cut = SegmentedModel::make(model, {}, 1);
    CHECK(cut.arguments() == std::vector<std::string>{"bias", "x", "scale"});
    const std::vector<c10::IValue> inputs = {at::full({2}, 3.0), at::ones({4}), at::full({1}, 5.0)};
    CHECK(run_segments(cut, inputs, {}, false).loss == 4 * 2 * 5 + 6 + 4);
    CHECK_THAT(lower_error("def forward(self, batch: Dict[str, Tensor]) -> Tensor:\n"
                           "    out = self.w.sum()\n"
                           "    for name in batch:\n        out = out + batch[name].sum()\n"
                           "    return out\n",
                           {}),
               Catch::Contains("does something other than read a value by its name"));
}

TEST_CASE("an optional argument that the data offer is supplied") {
    const std::string text =
        "def forward(self, x: Tensor, labels: Optional[Tensor] = None, flag: bool = True) -> "
        "Tensor:\n"
        "    out = (x * self.w).sum()\n"
        "    if labels is not None:\n        out = out + labels.sum()\n"
        "    return out\n";
    Model model = script_model(text, {{"w", at::full({4}, 2.0)}});
    LowerOptions options;
    CHECK(lower(model, options).arguments == std::vector<std::string>{"x"});
    options.offered = {"labels", "flag", "other"};
    const SegmentedModel cut = SegmentedModel::make(model, options, 1);
    CHECK(cut.arguments() == std::vector<std::string>{"x", "labels"});
    CHECK(run_segments(cut, {at::ones({4}), at::full({2}, 3.0)}, {}, false).loss == 14);
}

TEST_CASE("the losses that a config can name are those of PyTorch, in closed form") {
    const std::string text = "def forward(self, x: Tensor) -> Tensor:\n    return x * self.w\n";
    // Output [0.25, 0.5, 0.75, 1], targets 0: means of squares, of absolute values, of log(1 +
    // e^o).
    double softplus = 0;
    for (const double o : {0.25, 0.5, 0.75, 1.0}) softplus += std::log1p(std::exp(o)) / 4;
    const std::pair<LossKind, double> rows[] = {{LossKind::kMse, (0.0625 + 0.25 + 0.5625 + 1) / 4},
                                                {LossKind::kL1, 0.625},
                                                {LossKind::kBceWithLogits, softplus}};
    for (const auto& [kind, expected] : rows) {
        Model model = script_model(text, {{"w", ramp(4)}});
        const SegmentedModel cut = SegmentedModel::make(model, with_loss(kind), 1);
        CHECK(cut.arguments() == std::vector<std::string>{"x", "y"});
        CHECK(run_segments(cut, {at::ones({4}), at::zeros({4})}, {}, false).loss ==
              Approx(expected).epsilon(1e-6));
    }
    Model model = script_model("def forward(self, x: Tensor) -> Tensor:\n    return x * self.w\n",
                               {{"w", ramp(4)}});
    const SegmentedModel cut = SegmentedModel::make(model, with_loss(LossKind::kCrossEntropy), 1);
    // Rows of equal logits cost log(classes); targets of -100 do not count.
    const at::Tensor labels = at::tensor({2, -100, 1, 0, 3, -100}, at::kLong).view({2, 3});
    CHECK(run_segments(cut, {at::zeros({2, 3, 4}), labels}, {}, false).loss ==
          Approx(std::log(4.0)).epsilon(1e-6));
}

TEST_CASE("a dict that forward makes and fills on its way holds up no cut") {
    const auto model_of = [](const std::string& between, const std::string& end) {
        return script_model(
            "def forward(self, x: Tensor) -> Tensor:\n"
            "    kept: Dict[str, Tensor] = {'first': x}\n"
            "    x = torch.tanh(torch.linear(x, self.a))\n"
            "    kept['second'] = x\n" +
                between +
                "    x = torch.tanh(torch.linear(x, self.b))\n"
                "    kept['first'] = x * 2.0\n"
                "    if 'third' in kept:\n"
                "        x = x * 5.0\n" +
                end,
            {{"a", test::wave({4, 4}, 1)}, {"b", test::wave({4, 4}, 2)}});
    };
    const std::string end = "    return (kept['first'] + kept['second']).sum() + len(kept)\n";
    const at::Tensor x = test::wave({3, 4}, 3);
    // If the dict is read only by names, it is dissolved and the model is cut. If its length is
    // read, it stays.
    Model folded = model_of("", "    return (kept['first'] + kept['second']).sum()\n");
    Model kept = model_of("", end);
    const at::Tensor a = folded.parameters()[0].tensor, b = folded.parameters()[1].tensor;
    const at::Tensor second = at::tanh(at::linear(x, a));
    const double expected = (at::tanh(at::linear(second, b)) * 2.0 + second).sum().item<double>();
    const auto dicts = [](const LoweredGraph& lowered) {
        int count = 0;
        for (const torch::jit::Node* node : lowered.graph->nodes())
            for (const torch::jit::Value* output : node->outputs())
                count += output->type()->kind() == c10::TypeKind::DictType ? 1 : 0;
        return count;
    };
    CHECK(dicts(lower(folded, {})) == 0);
    CHECK(dicts(lower(kept, {})) == 1);
    const SegmentedModel cut = SegmentedModel::make(folded, {}, 2);
    CHECK(cut.segments().size() == 2);
    CHECK(run_segments(cut, {x}, {}, false).loss == Approx(expected));
    CHECK(run_segments(SegmentedModel::make(kept, {}, 1), {x}, {}, false).loss ==
          Approx(expected + 2));
    // A dict that a branch changes cannot be followed in a straight line.
    Model branched = model_of("    if bool(x.sum() > 0):\n        kept['second'] = x * 3.0\n",
                              "    return (kept['first'] + kept['second']).sum()\n");
    CHECK(dicts(lower(branched, {})) == 1);
    // A dict that forward returns is made at forward's end, from the last values.
    Model returned = script_model(
        "def forward(self, x: Tensor) -> Dict[str, Tensor]:\n"
        "    out: Dict[str, Tensor] = {}\n"
        "    out['loss'] = torch.linear(x, self.a).sum()\n"
        "    out['logits'] = x\n"
        "    out['loss'] = out['loss'] * 2.0\n"
        "    return out\n",
        {{"a", a.detach()}});
    CHECK(run_segments(SegmentedModel::make(returned, {}, 1), {x}, {}, false).loss ==
          Approx(2 * at::linear(x, a).sum().item<double>()));
}

TEST_CASE("what is forked is computed where it stands, and a future elsewhere is refused") {
    const auto forked = [](const std::string& body) {
        torch::jit::Module module("Scripted");
        module.register_parameter("w", at::ones({3}).set_requires_grad(true), false);
        module.define(
            "def twice(self, x: Tensor) -> Tensor:\n"
            "    return x * 2.0\n"
            "def square(self, x: Tensor) -> Tensor:\n"
            "    inner = fork(self.twice, x)\n"
            "    return x * torch.wait(inner)\n"
            "def forward(self, x: Tensor) -> Tensor:\n" +
                body,
            std::make_shared<test::ScriptNames>(test::ScriptNames::Names{
                {"fork", torch::jit::SpecialFormValue::create(c10::prim::fork)}}));
        return module;
    };
    const at::Tensor x = at::tensor({1.0f, 2.0f, 3.0f});
    Model model =
        Model::adopt(forked("    left = fork(self.square, x * self.w)\n"
                            "    right = torch.sum(x)\n"
                            "    return torch.wait(left).sum() + right\n"));
    const test::RunResult run = run_segments(SegmentedModel::make(model, {}, 1), {x}, {}, false);
    CHECK(run.loss == 34);  // 2 (1 + 4 + 9) + 6
    CHECK(at::equal(run.gradients.at("w"), 4 * x * x));
    Model listed =
        Model::adopt(forked("    all = [fork(self.square, x), fork(self.square, self.w)]\n"
                            "    total = torch.sum(x)\n"
                            "    for one in all:\n"
                            "        total = total + torch.wait(one).sum()\n"
                            "    return total\n"));
    CHECK_THAT(test::error_of(ExitCode::kInput, [&] { (void)lower(listed, {}); }),
               Contains("a torch.jit.fork future that is kept in a list"));
}

TEST_CASE("no cut is where a later node writes to an alias of a live value") {
    Model model = script_model(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    a = x * self.w\n"
        "    b = a.view(-1)\n"
        "    c = x.sin()\n"
        "    b.mul_(2.0)\n"
        "    return (a * c).sum()\n",
        {{"w", ramp(4)}});
    const LoweredGraph lowered = lower(model, {});
    const CutMap map = find_cuts(lowered, model);
    const auto index_of = [&](const std::string& kind) {
        for (size_t i = 0; i < map.nodes.size(); ++i)
            if (map.nodes[i]->kind().toQualString() == kind) return static_cast<int64_t>(i);
        return int64_t{-1};
    };
    const int64_t made = index_of("aten::mul"), writer = index_of("aten::mul_"),
                  sum = index_of("aten::sum");
    REQUIRE(made >= 0);
    REQUIRE(writer > made);
    std::set<int64_t> places;
    for (const CutPlace& place : map.places) places.insert(place.position);
    for (int64_t p = made + 1; p <= writer; ++p) CHECK(places.count(p) == 0);
    // Nothing forbids a cut after the write.
    CHECK(places.count(writer + 1) == 1);
    CHECK(places.count(sum) == 1);
}

TEST_CASE("what only the untaken branch of `training` writes is no state") {
    test::Fixture training = test::Fixture::load("state");
    const SegmentedModel trained = training.cut(1);
    std::set<std::string> paths;
    for (const ModelState& state : trained.states()) paths.insert(state.path);
    CHECK(paths == std::set<std::string>{"calls", "mean"});
    test::Fixture evaluated = test::Fixture::load("state", /*training=*/false);
    CHECK(evaluated.cut(1).states().empty());
}

TEST_CASE("a written attribute goes on from run to run") {
    test::Fixture fixture = test::Fixture::load("state");
    const SegmentedModel cut = fixture.cut(3);
    const auto arguments = fixture.batch(cut);
    for (int run = 1; run <= 3; ++run) {
        static_cast<void>(run_segments(cut, arguments, {}, false));
        CHECK(fixture.model.module().attr("calls").toInt() == run);
    }
    // `mean` is a buffer too. The model's list, which evaluation and saving use, has the values
    // that forward wrote.
    const at::Tensor mean = fixture.model.module().attr("mean").toTensor();
    CHECK(mean.abs().sum().item<float>() > 0);
    REQUIRE(fixture.model.buffers().size() == 1);
    CHECK(at::equal(fixture.model.buffers()[0].tensor, mean));
}

TEST_CASE("devices that a tracer wrote down become the rank's device") {
    const c10::Device meta(c10::kMeta);
    test::Fixture fixture = test::Fixture::load("qwen2");
    const LoweredGraph on_cpu = lower(fixture.model, fixture.options);
    fixture.options.device = meta;
    const LoweredGraph on_meta = lower(fixture.model, fixture.options);
    REQUIRE(devices_in(*on_cpu.graph->block(), c10::kCPU) > 0);
    CHECK(devices_in(*on_meta.graph->block(), c10::kCPU) == 0);
    CHECK(devices_in(*on_meta.graph->block(), meta) ==
          devices_in(*on_cpu.graph->block(), c10::kCPU));
}

TEST_CASE("a node that fails is named with its segment, module and source line") {
    test::Fixture fixture = test::Fixture::load("gpt");
    const SegmentedModel cut = fixture.cut(4);
    auto arguments = fixture.batch(cut);
    arguments[0] = at::full({2, 32}, 500, at::kLong);  // the vocabulary has 128
    CHECK_THROWS_WITH(run_segments(cut, arguments, {}, false),
                      Catch::StartsWith("segment 0 (") &&
                          Catch::Contains(") failed on Long [2, 32], Long [2, 32]: index out of "
                                          "range in self, at ") &&
                          Catch::Contains("/scripted_models.py:57: h = self.wte(tokens)"));
}

TEST_CASE("a loss that depends on no parameter is refused") {
    Model model = script_model("def forward(self, x: Tensor) -> Tensor:\n    return x.sum()\n",
                               {{"w", ramp(4)}});
    const SegmentedModel cut = SegmentedModel::make(model, {}, 1);
    CHECK_THROWS_WITH(run_segments(cut, {at::ones({4})}, {}, false),
                      Catch::Contains("does not depend on any trainable parameter"));
}

TEST_CASE("a forward that returns many numbers is told to name a loss") {
    Model model = script_model("def forward(self, x: Tensor) -> Tensor:\n    return x * self.w\n",
                               {{"w", ramp(4)}});
    const SegmentedModel cut = SegmentedModel::make(model, {}, 1);
    CHECK_THROWS_WITH(run_segments(cut, {at::ones({4})}, {}, false),
                      Catch::Contains("a tensor of 4 elements, not a loss"));
}

}  // namespace dslaunch
