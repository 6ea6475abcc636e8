// Exported programs of any folder, compared with PyTorch's results. EXPORTED_MODELS names a folder
// of NAME.pt2 and NAME.safetensors. The latter has the arguments of forward (`input.0`, `input.1`,
// …), `loss`, and `gradient.PARAMETER` if PyTorch has one, all in evaluation mode. The test prints
// a line for each model and counts. It is hidden if the variable is not set.
#include <ATen/core/grad_mode.h>
#include <fmt/core.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/archive/model.h"
#include "graph/segment/segmented_model.h"
#include "storage/files/safetensors.h"
#include "support/catch.h"
#include "unit/graph/torch_reference.h"

namespace dslaunch::graph {
namespace {

using storage::SafetensorsEntry;
using storage::SafetensorsFile;
using test::difference;
using test::tensor_of;

std::vector<c10::IValue> inputs_of(const SafetensorsFile& expected) {
    std::vector<c10::IValue> inputs;
    while (const SafetensorsEntry* input = expected.find(fmt::format("input.{}", inputs.size())))
        inputs.emplace_back(tensor_of(*input).clone());
    return inputs;
}

c10::IValue first_of(const c10::IValue& result) {
    if (result.isTuple()) return result.toTupleRef().elements()[0];
    if (result.isGenericDict()) return result.toGenericDict().at("loss");
    return result;
}

// The differences of loss and gradients. If the model cannot run, the reason is thrown.
struct Comparison {
    double loss = 0, gradients = 0;
    std::string worst;    // the parameter that differs most
    std::string missing;  // a gradient that only one of both has
    size_t segments = 0;
};

Comparison compare(const std::string& archive, const SafetensorsFile& expected) {
    Comparison found;
    Model model = Model::load(archive);
    double largest = 0;  // of all gradients; far below it there is only rounding
    for (const SafetensorsEntry& entry : expected.entries())
        if (entry.name.starts_with("gradient."))
            largest = std::max(largest, tensor_of(entry).abs().max().item<double>());
    found.segments = SegmentedModel::make(model, {}, 0).segments().size();
    model.module().eval();
    const at::Tensor loss = first_of(model.module().forward(inputs_of(expected))).toTensor();
    found.loss = difference(loss.detach(), tensor_of(*expected.find("loss")));
    loss.backward();
    for (const ModelParameter& parameter : model.parameters()) {
        std::vector<std::string> names = parameter.aliases;
        names.push_back(parameter.name);
        const SafetensorsEntry* theirs = nullptr;
        for (const std::string& name : names)
            if (theirs == nullptr) theirs = expected.find("gradient." + name);
        const at::Tensor gradient = parameter.tensor.grad();
        if (gradient.defined() != (theirs != nullptr)) {
            // If only the whole graph multiplies a parameter by zero, the gradient may be zeros or
            // missing.
            if (!gradient.defined() || gradient.count_nonzero().item<int64_t>() > 0)
                found.missing = parameter.name;
        } else if (gradient.defined()) {
            const double own = tensor_of(*theirs).abs().max().item<double>();
            const double off = difference(gradient, tensor_of(*theirs)) *
                               (own > 0 ? std::min(1.0, own / (1e-6 * largest)) : 1.0);
            if (off > found.gradients || std::isnan(off)) found.worst = parameter.name;
            found.gradients = std::isnan(off) ? off : std::max(found.gradients, off);
        }
    }
    return found;
}

}  // namespace

TEST_CASE("exported programs of a folder give the bits of PyTorch", "[.exported]") {
    const char* folder = std::getenv("EXPORTED_MODELS");
    REQUIRE(folder != nullptr);
    std::vector<std::filesystem::path> archives;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().extension() == ".pt2") archives.push_back(entry.path());
    std::ranges::sort(archives);
    size_t equal = 0, close = 0;
    for (const std::filesystem::path& archive : archives) {
        const std::string name = archive.stem().string();
        std::string verdict;
        try {
            const SafetensorsFile expected(
                std::filesystem::path(archive).replace_extension(".safetensors").string());
            const Comparison found = compare(archive.string(), expected);
            const double off = std::max(found.loss, found.gradients);
            if (!found.missing.empty()) {
                verdict = "DIFFERS: no gradient of " + found.missing;
            } else if (off == 0) {
                ++equal;
                verdict = "equal";
            } else if (off < 1e-5) {
                ++close;
                verdict = fmt::format("close {:.1e} {}", off, found.worst);
            } else {
                verdict = fmt::format("DIFFERS: loss {:.1e}, {} {:.1e}", found.loss, found.worst,
                                      found.gradients);
            }
            verdict += fmt::format(", {} segments", found.segments);
        } catch (const std::exception& error) {
            verdict = fmt::format("REFUSED: {}", error.what());
        }
        fmt::print("{}: {}\n", name, verdict.substr(0, verdict.find('\n')));
    }
    fmt::print("{} models: {} equal, {} within 1e-5\n", archives.size(), equal, close);
    CHECK(equal + close == archives.size());
}

}  // namespace dslaunch::graph
