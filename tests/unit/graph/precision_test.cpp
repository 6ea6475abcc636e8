// Every fixture in bf16 and fp16. A cut model must have the same bits as the whole model, and must
// be as close to fp32 as 16 bits allow. Also every operator that needs a cast.

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>

#include <cmath>
#include <thread>

#include "base/error.h"
#include "graph/lower/parameters_as.h"
#include "graph/measure/measure.h"
#include "graph/segment/compute_context.h"
#include "support/catch.h"
#include "support/every_nth.h"
#include "support/fixtures.h"
#include "support/script_module.h"
#include "support/whole_run.h"

namespace dslaunch {

using namespace config;
using namespace graph;
using namespace plan;
namespace {

using test::Fixture;
using test::MutableState;
using test::ramp;
using test::run_module;
using test::run_segments;
using test::RunResult;
using test::script_model;

constexpr DrawKey kPrecisionKey{7, 3, 5};
constexpr at::ScalarType kHalfTypes[] = {at::kBFloat16, at::kHalf};

// Converts the fp32 parameters of MODEL to DTYPE.
void cast_parameters(const Model& model, at::ScalarType dtype) {
    const at::NoGradGuard no_grad;
    for (const ModelParameter& parameter : model.parameters()) {
        at::Tensor tensor = parameter.tensor;
        if (tensor.scalar_type() != at::kFloat) continue;
        tensor.mutable_grad().reset();
        tensor.set_data(tensor.detach().to(dtype));
    }
}

// Returns true for norms. Modules of exported programs have no type of their own; among them,
// BatchNorm is recognised by its statistics.
bool is_norm(const torch::jit::Module& module) {
    const std::string type = module.type()->name()->qualifiedName();
    return type.find("LayerNorm") != std::string::npos ||
           type.find("BatchNorm") != std::string::npos || module.hasattr("running_mean");
}

// Returns true for models with norms that LibTorch refuses to run with 16-bit weights: their inputs
// or statistics are fp32.
bool needs_wide_norms(const std::string& name) {
    return name.ends_with("convnet") || name == "gpt2";
}

// Runs the module's own forward under autocast. If LibTorch cannot run it, its norms get the same
// weights in fp32, and their gradients are rounded after the run.
RunResult half_module(const std::string& name, const SegmentedModel& segmented,
                      const std::vector<c10::IValue>& arguments, const LossConfig& loss) {
    if (!needs_wide_norms(name)) return run_module(segmented, arguments, loss);
    const at::ScalarType dtype = segmented.lowered().compute_dtype;
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> wide;
    for (const torch::jit::Module& module : segmented.model().module().modules())
        if (is_norm(module))
            for (const at::Tensor& weight : module.parameters(/*recurse=*/false))
                wide.push_back(weight);
    REQUIRE(!wide.empty());
    for (const at::Tensor& weight : wide) weight.set_data(weight.data().to(at::kFloat));
    RunResult result;
    {
        const at::AutoGradMode with_gradients(true);
        result = run_module(segmented, arguments, loss);
    }
    test::clear_gradients(segmented.model());
    for (const at::Tensor& weight : wide) weight.set_data(weight.data().to(dtype));
    for (auto& [parameter, gradient] : result.gradients) gradient = gradient.to(dtype);
    return result;
}

bool compares(const std::string& name) {
    return name.ends_with("convnet") || name == "mixture";
}

// Returns |a - b| / |b| over all gradients.
double gradient_distance(const RunResult& a, const RunResult& b) {
    double difference = 0;
    double norm = 0;
    for (const auto& [name, gradient] : b.gradients) {
        const at::Tensor reference = gradient.to(at::kDouble);
        difference +=
            (a.gradients.at(name).to(at::kDouble) - reference).square().sum().item<double>();
        norm += reference.square().sum().item<double>();
    }
    return std::sqrt(difference / norm);
}

void check_dtypes(const RunResult& run, const Model& model, at::ScalarType dtype) {
    for (const auto& [name, gradient] : run.gradients) CHECK(gradient.scalar_type() == dtype);
    for (const ModelParameter& parameter : model.parameters())
        CHECK(parameter.tensor.scalar_type() == dtype);
    for (const ModelBuffer& buffer : model.buffers())
        CHECK_FALSE(at::isReducedFloatingType(buffer.tensor.scalar_type()));
}

void check_cuts(Fixture& fixture, const std::string& name, at::ScalarType dtype) {
    const SegmentedModel full = fixture.cut(1);
    const MutableState before(full);
    const auto arguments = fixture.batch(full);
    const RunResult reference = run_segments(full, arguments, kPrecisionKey, false);
    before.restore();
    cast_parameters(fixture.model, dtype);
    fixture.options.compute_dtype = dtype;
    const SegmentedModel one = fixture.cut(1);
    const RunResult whole = fixture.facts.at("random") == true
                                ? run_segments(one, arguments, kPrecisionKey, false)
                                : half_module(name, one, arguments, fixture.options.loss);
    // Measured: 0.05 % of the loss and 1.2 % of the gradients, in fp16 an eighth of these. After
    // rounding, comparisons (a router, max pooling) may have another result, and some gradients
    // flow elsewhere: 18 %.
    CHECK(std::abs(whole.loss - reference.loss) <= 2e-3 * std::abs(reference.loss));
    CHECK(gradient_distance(whole, reference) <= (compares(name) ? 0.3 : 0.03));
    check_dtypes(whole, fixture.model, dtype);
    for (const int64_t count : test::segment_counts(one.cut_places())) {
        const SegmentedModel cut = fixture.cut(count);
        CHECK(static_cast<int64_t>(cut.segments().size()) == count);
        for (const bool recompute : {false, true}) {
            before.restore();
            INFO(count << " segments" << (recompute ? ", recomputed" : ""));
            CHECK(difference(run_segments(cut, arguments, kPrecisionKey, recompute), whole) == "");
        }
    }
}

// One operator that autocast does not change, on x and the 16-bit parameter w, both [4, 4].
struct OperatorRow {
    const char* expression;
    const char* fails_with;  // dtypes of x: LibTorch alone refuses or gets them wrong
};

const OperatorRow kOperators[] = {
    {"torch.batch_norm(x, w[0], w[1], self.mean, self.variance, True, 0.1, 1e-5, False)", "both"},
    {"torch.native_batch_norm(x, w[0], w[1], self.mean, self.variance, True, 0.1, 1e-5)[0]",
     "both"},
    {"torch.instance_norm(x.unsqueeze(0), w[0], w[1], None, None, True, 0.1, 1e-5, False)", "fp32"},
    {"torch.group_norm(x, 2, w[0], w[1])", "fp32"},
    {"torch.layer_norm(x, [4], w[0], w[1])", "fp32"},
    {"torch.native_layer_norm(x, [4], w[0], w[1], 1e-5)[0]", "fp32"},
    {"torch._weight_norm(w, x[:, :1], 0)", "fp32"},
    {"torch.addmv(x[0], x, w[0])", "fp32"},
    {"torch.addr(x, x[0], w[0])", "fp32"},
    {"torch.bilinear(x, w, w.reshape([1, 4, 4]), None)", "fp32"},
    {"torch.cross(x[:, :3], w[:, :3], 1)", "fp32"},
    {"torch.linalg_cross(x[:, :3], w[:, :3])", "fp32"},
    {"torch.dot(x[0], w[0])", "fp32"},
    {"torch.vdot(w[0], x[0])", "fp32"},
    {"torch.inner(x, w)", "fp32"},
    {"torch.mv(x, w[0])", "fp32"},
    {"torch.tensordot(x, w, [1], [0])", "fp32"},
    {"torch.lerp(x, w, 0.25)", "fp32"},
    {"torch.lerp(x, w, w)", "fp32"},
    {"torch.index_add(x, 0, i, w[:3])", "fp32"},
    {"torch.index_put(x, [i], w[:3])", "fp32"},
    {"torch.index_reduce(x, 0, i, w[:3], \"mean\")", "fp32"},
    {"torch.masked_scatter(x, x > 0.5, w)", "fp32"},
    {"torch.scatter(x, 0, i.unsqueeze(1).expand([3, 4]), w[:3])", "fp32"},
    {"torch.scatter_add(x, 0, i.unsqueeze(1).expand([3, 4]), w[:3])", "fp32"},
    {"torch.scatter_reduce(x, 0, i.unsqueeze(1).expand([3, 4]), w[:3], \"sum\")", "fp32"},
    {"x.clone().index_add_(0, i, w[:3])", "fp32"},
    {"x.clone().index_copy_(0, i, w[:3])", "fp32"},
    {"x.clone().index_put_([i], w[:3])", "fp32"},
    {"w.clone().index_put_([i], x[:3])", "fp32"},
    {"x.clone().index_reduce_(0, i, w[:3], \"mean\")", "fp32"},
    {"x.clone().lerp_(w, 0.25)", "fp32"},
    {"x.clone().masked_scatter_(x > 0.5, w)", "fp32"},
    {"x.clone().scatter_(0, i.unsqueeze(1).expand([3, 4]), w[:3])", "fp32"},
    {"x.clone().scatter_add_(0, i.unsqueeze(1).expand([3, 4]), w[:3])", "fp32"},
    {"x.clone().scatter_reduce_(0, i.unsqueeze(1).expand([3, 4]), w[:3], \"sum\")", "fp32"},
    {"torch.embedding_bag(w, i, i[:1] * 0, False, 0, False, x[0, :3])[0]", "fp32"},
    {"torch.complex(w, x).abs()", "fp32"},
    {"torch.det(w) * x", "both"},
    {"torch.linalg_det(w) * x", "both"},
    {"torch.logdet(w) * x", "both"},
    {"torch.slogdet(w)[1] * x", "both"},
    {"torch.linalg_slogdet(w)[1] * x", "both"},
    {"torch.matrix_exp(w) * x", "both"},
    {"torch.linalg_matrix_exp(w) * x", "both"},
    {"torch.rrelu(-w, 0.125, 0.25, True) * x", "both fp16"},
    {"torch.lstm(x.unsqueeze(0), [x[:, :1].unsqueeze(0), x[:, :1].unsqueeze(0)], "
     "[w, w[:, :1], w[0], w[1]], True, 1, 0.0, True, False, False)[0]",
     "fp32 fp16"},
};

Model operator_model(const OperatorRow& row, bool half_input) {
    const std::string text = fmt::format(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    w = self.w\n"
        "    i = torch.arange(3)\n"
        "    {}\n"
        "    return ({}).float().mean()\n",
        half_input ? "x = x.type_as(w) + 0 * w" : "x = x + 0 * w.float()", row.expression);
    // Diagonally dominant with a positive determinant; 1/8 to 2 are numbers of both 16-bit types.
    const at::Tensor weights =
        at::arange(1, 17, at::kFloat).reshape({4, 4}).div(8) + at::eye(4).mul(2);
    return script_model(text, {{"w", weights}},
                        {{"mean", at::zeros({4})}, {"variance", at::ones({4})}});
}

// Returns the loss; NaN if a node fails. PLAIN: LibTorch alone, without the casts.
double operator_loss(Model& model, at::ScalarType dtype, bool plain) {
    const std::vector<c10::IValue> arguments = {
        at::arange(16, 0, -1, at::kFloat).reshape({4, 4}).div(16)};
    LowerOptions options;
    options.compute_dtype = dtype;
    const SegmentedModel segmented = SegmentedModel::make(model, options, 1);
    if (!plain) return run_segments(segmented, arguments, kPrecisionKey, false).loss;
    try {
        return run_module(segmented, arguments, {}).loss;
    } catch (const std::exception&) {
        return std::nan("");
    }
}

}  // namespace

TEST_CASE("in half precision a model cut into any number of segments is the model run whole",
          "[matrix]") {
    at::set_num_threads(1);
    size_t number = 0;
    for (const std::string& name : test::fixture_names()) {
        const at::ScalarType of_this = kHalfTypes[number++ % std::size(kHalfTypes)];
        for (const at::ScalarType dtype : kHalfTypes) {
            if (dtype != of_this && !test::whole_matrix()) continue;
            INFO(name << " in " << c10::toString(dtype));
            Fixture fixture = Fixture::load(name);
            check_cuts(fixture, name, dtype);
        }
    }
}

TEST_CASE("every operator of the casts' table needs its cast, and with it has the value of fp32") {
    at::set_num_threads(1);
    for (const OperatorRow& row : kOperators)
        for (const at::ScalarType dtype : kHalfTypes)
            for (const bool half_input : {false, true}) {
                INFO(row.expression << " in " << c10::toString(dtype)
                                    << (half_input ? ", 16-bit input" : ", fp32 input"));
                Model reference = operator_model(row, half_input);
                const double expected = operator_loss(reference, at::kFloat, false);
                Model model = operator_model(row, half_input);
                cast_parameters(model, dtype);
                // Some ten operations on numbers of order 1, each rounded to 2^-9 at most; a
                // determinant or an exponential of four times as many.
                CHECK(operator_loss(model, dtype, false) == Approx(expected).epsilon(0.03));
                CHECK(model.parameters()[0].tensor.grad().scalar_type() == dtype);
                const std::string fails = row.fails_with;
                const bool must_fail =
                    (dtype == at::kHalf || fails.find("fp16") == std::string::npos) &&
                    (fails.find("both") == 0 || !half_input);
                if (must_fail) CHECK(!std::isfinite(operator_loss(model, dtype, true)));
            }
}

TEST_CASE("a parameter that is cast stays the tensor that it was, ties and strides included") {
    Fixture fixture = Fixture::load("gpt-tied");
    std::vector<const c10::TensorImpl*> identity;
    std::vector<int> all;
    for (const ModelParameter& parameter : fixture.model.parameters()) {
        all.push_back(static_cast<int>(identity.size()));
        identity.push_back(parameter.tensor.unsafeGetTensorImpl());
    }
    at::Tensor turned = at::arange(6, at::kFloat).reshape({2, 3}).t();
    Model strided =
        script_model("def forward(self, x: Tensor) -> Tensor:\n    return x.sum()\n",
                     {{"w", turned}, {"frozen", ramp(3)}, {"wide", ramp(3).to(at::kDouble)}},
                     {{"average", ramp(3)}});
    strided.parameters()[0].tensor.set_data(turned);
    at::Tensor(strided.parameters()[1].tensor).set_requires_grad(false);
    const auto& parameters = strided.parameters();
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
        {
            LoweredGraph lowered;
            lowered.compute_dtype = lowered.parameter_dtype = dtype;
            const ParametersAs tied(fixture.model, all, lowered);
            const ParametersAs cast(strided, std::vector<int>{0, 1, 2}, lowered);
            for (const auto& item : fixture.model.module().named_parameters()) {
                CHECK(item.value.scalar_type() == dtype);
                CHECK(fixture.model.parameter_index(item.value) >= 0);
            }
            for (size_t i = 0; i < identity.size(); ++i) {
                const at::Tensor& tensor = fixture.model.parameters()[i].tensor;
                CHECK(tensor.unsafeGetTensorImpl() == identity[i]);
                CHECK(tensor.requires_grad());
            }
            CHECK(parameters[0].tensor.scalar_type() == dtype);
            CHECK(parameters[0].tensor.strides() == at::IntArrayRef({1, 3}));
            CHECK(at::equal(parameters[0].tensor.to(at::kFloat), turned));
            CHECK(parameters[1].tensor.scalar_type() == dtype);
            CHECK_FALSE(parameters[1].tensor.requires_grad());
            CHECK(parameters[2].tensor.scalar_type() == at::kDouble);
            CHECK(strided.buffers()[0].tensor.scalar_type() == at::kFloat);
        }
        for (const ModelParameter& parameter : fixture.model.parameters())
            CHECK(parameter.tensor.scalar_type() == at::kFloat);
        CHECK(parameters[0].tensor.data_ptr() == turned.data_ptr());
        CHECK(at::equal(parameters[1].tensor, ramp(3)));
    }
}

TEST_CASE("a compute context sets its own thread's autocast and puts back what it found") {
    const auto state = [](c10::DeviceType device) {
        return std::make_tuple(at::autocast::is_autocast_enabled(device),
                               at::autocast::get_autocast_dtype(device),
                               at::autocast::is_autocast_cache_enabled());
    };
    const auto cpu = state(at::kCPU);
    const auto cuda = state(at::kCUDA);
    {
        const ComputeContext half(true, at::kHalf, at::kCUDA);
        CHECK(state(at::kCPU) == std::make_tuple(true, at::kHalf, false));
        CHECK(state(at::kCUDA) == std::make_tuple(true, at::kHalf, false));
        std::thread other([&] { CHECK(state(at::kCPU) == cpu); });
        other.join();
        {
            const ComputeContext inner(false, at::kBFloat16);
            CHECK(state(at::kCPU) == std::make_tuple(true, at::kBFloat16, false));
            CHECK(state(at::kCUDA) == std::make_tuple(true, at::kHalf, false));
            const ComputeContext full(false);
            CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
        }
        CHECK(state(at::kCPU) == std::make_tuple(true, at::kHalf, false));
    }
    CHECK(state(at::kCPU) == cpu);
    CHECK(state(at::kCUDA) == cuda);
}

TEST_CASE(
    "a live value in fp32 that several products read has the gradient of the model run whole") {
    // If casts of leaves were cached, the value's gradients would be added in 16 bits, but only at
    // a cut.
    for (const at::ScalarType dtype : kHalfTypes) {
        Model model = script_model(
            "def forward(self, x: Tensor) -> Tensor:\n"
            "    y = x * self.w\n"
            "    a = torch.mm(y, self.u)\n"
            "    b = torch.mm(y, self.v)\n"
            "    return (a * x).sum() + b.sin().sum()\n",
            {{"w", ramp(64).reshape({8, 8})},
             {"u", ramp(64).reshape({8, 8}).sin()},
             {"v", ramp(64).reshape({8, 8}).cos()}});
        cast_parameters(model, dtype);
        LowerOptions options;
        options.compute_dtype = dtype;
        const std::vector<c10::IValue> arguments = {ramp(64).reshape({8, 8}).mul(7).cos()};
        const SegmentedModel one = SegmentedModel::make(model, options, 1);
        const RunResult whole = run_module(one, arguments, {});
        for (int64_t count = 1; count <= one.cut_places() + 1; ++count) {
            const SegmentedModel cut = SegmentedModel::make(model, options, count);
            INFO(count << " segments in " << c10::toString(dtype));
            CHECK(difference(run_segments(cut, arguments, kPrecisionKey, false), whole) == "");
        }
    }
}

TEST_CASE("backward keeps the dtypes of its forward") {
    // autocast inverts in fp32, so the product in the inverse's backward must not be narrowed.
    for (const at::ScalarType dtype : kHalfTypes) {
        Model model = script_model(
            "def forward(self, x: Tensor) -> Tensor:\n"
            "    return (torch.inverse(self.w) * x).sum()\n",
            {{"w", at::eye(5).mul(3) + ramp(25).reshape({5, 5})}});
        cast_parameters(model, dtype);
        LowerOptions options;
        options.compute_dtype = dtype;
        const SegmentedModel segmented = SegmentedModel::make(model, options, 1);
        const std::vector<c10::IValue> arguments = {ramp(25).reshape({5, 5})};
        // d sum(W^-1 * X) = -W^-T X W^-T, rounded once.
        const at::Tensor inverse =
            model.parameters()[0].tensor.detach().to(at::kFloat).inverse().t();
        const at::Tensor expected =
            inverse.matmul(arguments[0].toTensor()).matmul(inverse).neg().to(dtype);
        const RunResult run = run_segments(segmented, arguments, kPrecisionKey, false);
        CHECK(at::allclose(run.gradients.at("w").to(at::kFloat), expected.to(at::kFloat),
                           dtype == at::kHalf ? 1e-3 : 8e-3, 0));
        CHECK(difference(run, run_module(segmented, arguments, {})) == "");
    }
}

TEST_CASE("losses that a config names are computed in fp32") {
    const std::string text =
        "def forward(self, x: Tensor) -> Tensor:\n    return x.type_as(self.w) * self.w\n";
    // 1000 values near 1/3 whose differences and sums bf16 does not hold.
    const at::Tensor weights = at::full({10, 100}, 1.0 / 3);
    const at::Tensor input = at::linspace(0.5, 1, 1000).reshape({10, 100});
    for (const at::ScalarType dtype : kHalfTypes)
        for (const LossKind kind :
             {LossKind::kCrossEntropy, LossKind::kMse, LossKind::kL1, LossKind::kBceWithLogits}) {
            Model model = script_model(text, {{"w", weights}});
            cast_parameters(model, dtype);
            LowerOptions options;
            options.compute_dtype = dtype;
            options.loss.kind = kind;
            options.loss.target = "y";
            const SegmentedModel segmented = SegmentedModel::make(model, options, 2);
            const at::Tensor target = kind == LossKind::kCrossEntropy
                                          ? at::arange(10, at::kLong)
                                          : at::linspace(0, 1, 1000).reshape({10, 100});
            const at::Tensor output = (input.to(dtype) * weights.to(dtype)).to(at::kFloat);
            CHECK(run_segments(segmented, {input, target}, kPrecisionKey, false).loss ==
                  test::named_loss(kind, output, target).item<double>());
        }
}

TEST_CASE("a loss scale that fp16 does not hold makes gradients infinite and throws nothing") {
    Model model = script_model(
        "def forward(self, x: Tensor) -> Tensor:\n    return (x.type_as(self.w) * self.w).amax()\n",
        {{"w", ramp(4)}});
    cast_parameters(model, at::kHalf);
    LowerOptions options;
    options.compute_dtype = at::kHalf;
    const SegmentedModel segmented = SegmentedModel::make(model, options, 1);
    const ComputeContext context(true, at::kHalf);
    const auto gradient_of_last = [&](double scale) {
        Boundary boundary = segmented.forward(0, segmented.first_inputs({ramp(4)}), kPrecisionKey);
        SegmentedModel::backward_loss(boundary, scale);
        const at::Tensor gradient = model.parameters()[0].tensor.grad().clone();
        test::clear_gradients(model);
        return gradient[3].item<double>();
    };
    CHECK(gradient_of_last(32768) == 32768);
    CHECK(gradient_of_last(131072) == std::numeric_limits<double>::infinity());
}

TEST_CASE("a model is measured in its compute dtype") {
    at::set_num_threads(1);
    for (const std::string& name : test::fixture_names()) {
        INFO(name);
        Fixture fixture = Fixture::load(name);
        const SegmentedModel full = fixture.cut(4);
        const auto arguments = fixture.batch(full);
        const ModelInfo wide = measure(full, arguments);
        cast_parameters(fixture.model, at::kBFloat16);
        fixture.options.compute_dtype = at::kBFloat16;
        const SegmentedModel half = fixture.cut(4);
        const ModelInfo narrow = measure(half, arguments);
        for (const ParameterInfo& parameter : wide.parameters) CHECK(parameter.element_bytes == 4);
        for (const ParameterInfo& parameter : narrow.parameters)
            CHECK(parameter.element_bytes == 2);
        CHECK(narrow.buffer_bytes == wide.buffer_bytes);
        // An LSTM that is one kernel counts fewer FLOPs than an LSTM of products. The processor
        // decides which of them bf16 takes.
        if (name == "lstm" || name == "mixture") {
            CHECK(narrow.forward_flops() >= wide.forward_flops());
        } else {
            CHECK(narrow.forward_flops() == wide.forward_flops());
        }
        const ComputeContext context(true, at::kBFloat16);
        std::vector<c10::IValue> inputs = half.first_inputs(arguments);
        for (size_t s = 0; s < narrow.segments.size(); ++s) {
            Boundary boundary = half.forward(s, inputs, kPrecisionKey);
            CHECK(narrow.segments[s].output_bytes == Bytes{boundary.bytes()});
            inputs = std::move(boundary.values);
        }
    }
    // Only an embedding's rows are alive: 16 bits per element in `half`, 32 in `full`.
    Model model = script_model(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    y = torch.embedding(self.w, x)\n    return y.sum()\n",
        {{"w", ramp(40).reshape({10, 4})}});
    const std::vector<c10::IValue> tokens = {at::arange(6, at::kLong)};
    LowerOptions options;
    const SegmentedModel full = SegmentedModel::make(model, options, 2);
    CHECK(measure(full, tokens).segments[0].output_bytes == Bytes{6 * 4 * 4});
    cast_parameters(model, at::kHalf);
    options.compute_dtype = at::kHalf;
    const SegmentedModel half = SegmentedModel::make(model, options, 2);
    CHECK(measure(half, tokens).segments[0].output_bytes == Bytes{6 * 4 * 2});
}

TEST_CASE("an operator that has no half precision is named with its place and what to do") {
    Model model = script_model(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    return (torch.linalg_pinv(self.w, 1e-6) * x).sum()\n",
        {{"w", at::eye(4)}});
    cast_parameters(model, at::kHalf);
    LowerOptions options;
    options.compute_dtype = at::kHalf;
    const SegmentedModel segmented = SegmentedModel::make(model, options, 1);
    std::string message;
    try {
        static_cast<void>(measure(segmented, {at::ones({4, 4})}));
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kInput);
        message = error.what();
    }
    INFO(message);
    CHECK(message.find("in float16") != std::string::npos);
    CHECK(message.find("turn off fp16 or torch_autocast") != std::string::npos);
    CHECK(message.find("pinv") != std::string::npos);
    CHECK(message.find("<string>:2:") != std::string::npos);
}

}  // namespace dslaunch
