#include "graph/segment/segmented_model.h"

#include <ATen/core/stack.h>
#include <ATen/ops/full_like.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/passes/canonicalize.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <map>

#include "base/check.h"
#include "base/error.h"
#include "base/machine/memory_shortage.h"
#include "base/text.h"
#include "base/text/torch_reason.h"
#include "graph/lower/precision.h"
#include "graph/segment/compute_context.h"

namespace dslaunch::graph {

namespace {

// Returns LISTED, followed by the other numbers from 0 to COUNT - 1 in ascending order.
std::vector<int> with_others(std::vector<int> listed, size_t count) {
    std::vector<char> is_listed(count, 0);
    for (const int index : listed) is_listed[index] = 1;
    for (size_t i = 0; i < count; ++i)
        if (is_listed[i] == 0) listed.push_back(static_cast<int>(i));
    return listed;
}

}  // namespace

SegmentedModel SegmentedModel::make(Model& model, const LowerOptions& options, int64_t segments) {
    return of_graph(model, lower(model, options), segments);
}

SegmentedModel SegmentedModel::of_graph(Model& model, LoweredGraph lowered, int64_t segments) {
    SegmentedModel made(model, std::move(lowered));
    const CutMap map = find_cuts(made.lowered_, model);
    int64_t numel = 0;
    for (const int parameter : made.lowered_.parameters)
        numel += model.parameters()[parameter].weight_numel();
    made.cut_places_ = static_cast<int64_t>(map.places.size());
    made.cut(map, plan::choose_cuts(map.places, numel, segments));
    return made;
}

void SegmentedModel::cut(const CutMap& map, const std::vector<int64_t>& positions) {
    std::vector<int64_t> ends = positions;
    ends.push_back(static_cast<int64_t>(map.nodes.size()));
    // Segment 0 takes every argument and state, so that callers need not know which of them it
    // reads.
    LiveRange live;
    for (size_t i = lowered_.first_argument(); i < lowered_.first_parameter(); ++i)
        live.in.push_back(lowered_.graph->inputs()[i]);
    std::map<std::string, std::shared_ptr<Code>> codes;
    SegmentNodes range;
    for (const int64_t end : ends) {
        range.end = end;
        const auto outputs = lowered_.graph->outputs();
        live.out = end == ends.back() ? std::vector<Value*>(outputs.begin(), outputs.end())
                                      : map.alive_at(end, lowered_);
        Segment segment = build_segment(*model_, lowered_, map, range, live);
        const std::string text = torch::jit::Canonicalize(segment.graph, false)->toString(false);
        std::shared_ptr<Code>& code = codes[text];
        if (code == nullptr) code = std::make_shared<Code>(segment.graph, segment.name);
        segment.code = code;
        range.begin = end;
        range.draw_ordinal_first += segment.draws;
        live.in = std::move(live.out);
        segments_.push_back(std::move(segment));
    }
}

std::vector<int> SegmentedModel::parameters_of(const Segment& segment) const {
    return segment.takes_module ? with_others(segment.parameters, model_->parameters().size())
                                : segment.parameters;
}

std::vector<int> SegmentedModel::buffers_of(const Segment& segment) const {
    return segment.takes_module ? with_others(segment.buffers, model_->buffers().size())
                                : segment.buffers;
}

std::vector<int> SegmentedModel::unused_parameters() const {
    std::vector<bool> used(model_->parameters().size(), false);
    for (const Segment& segment : segments_)
        for (const int parameter : parameters_of(segment)) used[parameter] = true;
    std::vector<int> unused;
    for (size_t i = 0; i < used.size(); ++i)
        if (!used[i]) unused.push_back(static_cast<int>(i));
    return unused;
}

std::vector<std::shared_ptr<Code>> SegmentedModel::exchange_codes(
    std::vector<std::shared_ptr<Code>> codes) {
    DSL_CHECK(codes.size() == segments_.size(), "there are {} codes for {} segments", codes.size(),
              segments_.size());
    for (size_t i = 0; i < codes.size(); ++i) std::swap(segments_[i].code, codes[i]);
    return codes;
}

std::vector<IValue> SegmentedModel::first_inputs(std::vector<IValue> arguments) const {
    DSL_CHECK(arguments.size() == lowered_.arguments.size(),
              "forward takes {} arguments, but {} were given", lowered_.arguments.size(),
              arguments.size());
    // States are detached, so that the tensors that autograd saves stay valid when the buffer is
    // replaced.
    const auto detach = [](const at::Tensor& tensor) { return tensor.detach(); };
    for (const ModelState& state : lowered_.states)
        arguments.push_back(map_tensors(state.object->getAttr(state.attribute), detach));
    return arguments;
}

void SegmentedModel::store_states(const Boundary& last) const {
    for (size_t i = 0; i < lowered_.states.size(); ++i) {
        const ModelState& state = lowered_.states[i];
        IValue value = map_tensors(last.values[1 + i],
                                   [](const at::Tensor& tensor) { return tensor.detach(); });
        // A buffer stays the tensor object that the model lists, so that evaluation, sending and
        // saving use its current value.
        const IValue before = state.object->getAttr(state.attribute);
        if (before.isTensor() && value.isTensor() && model_->buffer_index(before.toTensor()) >= 0) {
            before.toTensor().set_data(value.toTensor());
        } else {
            state.object->setAttr(state.attribute, std::move(value));
        }
    }
}

namespace {

// Returns a text such as "Float [2, 3], Long [2]" about the first tensors in INPUTS.
std::string shapes_text(const std::vector<IValue>& inputs) {
    constexpr size_t kShownMax = 4;
    std::vector<std::string> shown;
    for (const IValue& input : inputs) {
        if (!input.isTensor() || !input.toTensor().defined()) continue;
        if (shown.size() == kShownMax) {
            shown.emplace_back("…");
            break;
        }
        const at::Tensor& tensor = input.toTensor();
        shown.push_back(fmt::format("{} [{}]", c10::toString(tensor.scalar_type()),
                                    fmt::join(tensor.sizes(), ", ")));
    }
    return shown.empty() ? "no tensors" : join(shown, ", ");
}

}  // namespace

Boundary SegmentedModel::forward(size_t index, const std::vector<IValue>& inputs,
                                 const DrawKey& key, c10::Device device) const {
    const Segment& segment = segments_[index];
    torch::jit::Stack stack;
    stack.reserve(inputs.size() + segment.parameters.size() + segment.buffers.size() + 1);
    if (segment.takes_module) stack.emplace_back(model_->module()._ivalue());
    for (const IValue& input : inputs) stack.push_back(input);
    std::vector<const c10::StorageImpl*> lenders;
    const auto lend = [&](const at::Tensor& tensor) {
        stack.emplace_back(tensor);
        lenders.push_back(tensor.storage().unsafeGetStorageImpl());
    };
    for (const int parameter : segment.parameters) lend(model_->parameters()[parameter].tensor);
    for (const int buffer : segment.buffers) lend(model_->buffers()[buffer].tensor);
    const DrawScope draws(key, segment.draw_ordinal_first, device);
    try {
        torch::jit::InterpreterState(*segment.code).run(stack);
    } catch (const std::exception& error) {
        if (is_memory_shortage(error))
            fail(ExitCode::kSetup, "segment {} ({}): {}", index, segment.name,
                 memory_shortage_text(torch_reason(error)));
        fail(ExitCode::kInput, "segment {} ({}) failed on {}{}: {}", index, segment.name,
             shapes_text(inputs), precision_advice(lowered_.compute_dtype), torch_reason(error));
    }
    return make_boundary(stack, lenders);
}

namespace {

struct Roots {
    std::vector<at::Tensor> tensors;
    std::vector<at::Tensor> gradients;
};

// Moves the roots of BOUNDARY's backward out of BOUNDARY, and frees the rest of BOUNDARY.
Roots take_roots(Boundary& boundary) {
    Roots roots;
    for (size_t i = 0; i < boundary.producers.size(); ++i) {
        if (!boundary.leaves[i].grad().defined()) continue;
        roots.tensors.push_back(std::move(boundary.producers[i]));
        roots.gradients.push_back(boundary.leaves[i].grad());
        boundary.leaves[i].mutable_grad().reset();
    }
    boundary = {};
    return roots;
}

Roots take_loss(Boundary& boundary, double scale) {
    if (boundary.producers.empty())
        fail(ExitCode::kInput,
             "the loss does not depend on any trainable parameter: nothing can be trained");
    // Only the loss is a root: the outputs after it are states.
    at::Tensor loss = boundary.producers.front();
    boundary = {};
    return {{loss}, {at::full_like(loss, scale)}};
}

void run_backward(const Roots& roots) {
    const BackwardContext context;
    if (!roots.tensors.empty()) torch::autograd::backward(roots.tensors, roots.gradients);
}

WeightHalf run_first_half(const Roots& roots, const std::vector<at::Tensor>& leaves) {
    const BackwardContext context;
    return backward_inputs(roots.tensors, roots.gradients, leaves);
}

}  // namespace

void SegmentedModel::backward(Boundary& boundary) {
    run_backward(take_roots(boundary));
}

void SegmentedModel::backward_loss(Boundary& boundary, double scale) {
    run_backward(take_loss(boundary, scale));
}

WeightHalf SegmentedModel::backward_inputs(Boundary& boundary,
                                           const std::vector<at::Tensor>& leaves) {
    return run_first_half(take_roots(boundary), leaves);
}

WeightHalf SegmentedModel::backward_loss_inputs(Boundary& boundary, double scale,
                                                const std::vector<at::Tensor>& leaves) {
    return run_first_half(take_loss(boundary, scale), leaves);
}

const at::Tensor& loss_tensor(const Boundary& last) {
    DSL_CHECK(!last.values.empty() && last.values[0].isTensor(),
              "the last segment returns no loss");
    const at::Tensor& loss = last.values[0].toTensor();
    if (loss.numel() != 1)
        fail(ExitCode::kInput,
             "forward returns a tensor of {} elements, not a loss; return a scalar, or name a loss "
             "in the config "
             "(dslaunch.loss)",
             loss.numel());
    return loss;
}

const at::Tensor& rewards_tensor(const Boundary& last) {
    DSL_CHECK(last.values.size() > 1 && last.values.back().isTensor(),
              "the last segment returns no rewards");
    return last.values.back().toTensor();
}

double loss_of(const Boundary& last) {
    return loss_tensor(last).item<double>();
}

}  // namespace dslaunch::graph
