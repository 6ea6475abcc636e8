// The reference of the segment tests: a module that LibTorch runs as a whole, and the same model
// cut into segments. Each run has all gradients, all buffers, and all attributes that forward
// writes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <c10/core/ScalarType.h>
#include <fmt/core.h>

#include <map>
#include <string>
#include <vector>

#include "graph/segment/compute_context.h"
#include "graph/segment/segmented_model.h"

namespace dslaunch::test {

using namespace config;
using namespace graph;

struct RunResult {
    double loss = 0;
    std::map<std::string, at::Tensor> gradients;  // by parameter name; undefined ones are left out
    std::map<std::string, at::Tensor> buffers;    // buffers after the run
    std::map<std::string, std::string> states;  // attributes that forward writes, after the run, as
                                                // text with all digits
};

// The buffers and written attributes of a model at this moment. restore() sets them to these values
// again, so that all runs start in the same way.
class MutableState {
  public:
    explicit MutableState(const SegmentedModel& segmented) : segmented_(segmented) {
        for (const ModelBuffer& buffer : segmented.model().buffers())
            buffers_.push_back(buffer.tensor.clone());
        for (const ModelState& state : segmented.states()) {
            states_.push_back(state.object->getAttr(state.attribute));
            copies_.push_back(copy(states_.back()));
        }
    }
    void restore() const {
        const at::NoGradGuard no_grad;
        for (size_t i = 0; i < buffers_.size(); ++i)
            at::Tensor(segmented_.model().buffers()[i].tensor).copy_(buffers_[i]);
        for (size_t i = 0; i < states_.size(); ++i) {
            const ModelState& state = segmented_.states()[i];
            // The old tensor object is set again too, because a buffer is recognized by its
            // identity.
            if (states_[i].isTensor()) states_[i].toTensor().set_data(copy(copies_[i]).toTensor());
            state.object->setAttr(state.attribute, states_[i]);
        }
    }

  private:
    static c10::IValue copy(const c10::IValue& value) {
        return map_tensors(value, [](const at::Tensor& tensor) { return tensor.detach().clone(); });
    }
    const SegmentedModel& segmented_;
    std::vector<at::Tensor> buffers_;
    std::vector<c10::IValue> states_;
    std::vector<c10::IValue> copies_;
};

inline void clear_gradients(const Model& model) {
    for (const ModelParameter& parameter : model.parameters())
        at::Tensor(parameter.tensor).mutable_grad().reset();
}

inline std::string state_text(const c10::IValue& value) {
    if (!value.isTensor()) {
        std::ostringstream text;
        text << value;
        return text.str();
    }
    std::string text;
    const at::Tensor flat = value.toTensor().detach().to(at::kDouble).flatten().contiguous();
    for (int64_t i = 0; i < flat.numel(); ++i)
        text += fmt::format("{} ", flat.const_data_ptr<double>()[i]);
    return text;
}

inline RunResult collect(const SegmentedModel& segmented, double loss) {
    RunResult result;
    result.loss = loss;
    for (const ModelParameter& parameter : segmented.model().parameters())
        if (parameter.tensor.grad().defined())
            result.gradients[parameter.name] = parameter.tensor.grad().clone();
    for (const ModelState& state : segmented.states())
        result.states[state.path] = state_text(state.object->getAttr(state.attribute));
    for (const ModelBuffer& buffer : segmented.model().buffers())
        if (result.states.count(buffer.name) == 0)
            result.buffers[buffer.name] = buffer.tensor.clone();
    return result;
}

inline at::Tensor named_loss(LossKind kind, const at::Tensor& output, const at::Tensor& target) {
    switch (kind) {
        case LossKind::kCrossEntropy:
            return at::cross_entropy_loss(output, target);
        case LossKind::kMse:
            return at::mse_loss(output, target);
        case LossKind::kL1:
            return at::l1_loss(output, target);
        case LossKind::kBceWithLogits:
            return at::binary_cross_entropy_with_logits(output, target);
        case LossKind::kModel:
        case LossKind::kDpo:
        case LossKind::kIpo:
        case LossKind::kSimPo:
        case LossKind::kOrpo:
            break;
    }
    return output;
}

// Runs the module's own forward, as LibTorch does, under autocast if SEGMENTED computes in half
// precision. SEGMENTED names the results to collect. ARGUMENTS include the target, if there is one.
inline RunResult run_module(const SegmentedModel& segmented, std::vector<c10::IValue> arguments,
                            const LossConfig& loss, bool training = true) {
    const at::ScalarType dtype = segmented.lowered().compute_dtype;
    Model& model = segmented.model();
    clear_gradients(model);
    model.set_training(training);
    at::Tensor target;
    if (loss.kind != LossKind::kModel) {
        target = arguments.back().toTensor();
        arguments.pop_back();
    }
    at::Tensor value;
    {
        const ComputeContext context(true, dtype);
        at::Tensor output = model.module().forward(std::move(arguments)).toTensor();
        if (dtype != at::kFloat) output = output.to(at::kFloat);
        value = named_loss(loss.kind, output, target);
    }
    // backward() runs outside of autocast, as PyTorch's manual says.
    value.backward();
    return collect(segmented, value.item<double>());
}

// Runs segment by segment. RECOMPUTE: each segment keeps only its inputs and is run again before
// its backward. The buffers then get their earlier values again, as in the runtime.
inline RunResult run_segments(const SegmentedModel& segmented,
                              const std::vector<c10::IValue>& arguments, const DrawKey& key,
                              bool recompute) {
    const ComputeContext context(true, segmented.lowered().compute_dtype);
    clear_gradients(segmented.model());
    const size_t count = segmented.segments().size();
    std::vector<std::vector<c10::IValue>> inputs = {segmented.first_inputs(arguments)};
    std::vector<Boundary> boundaries;
    const auto buffer = [&](size_t k, size_t b) {
        return at::Tensor(segmented.model().buffers()[segmented.segments()[k].buffers[b]].tensor);
    };
    for (size_t k = 0; k < count; ++k) {
        boundaries.push_back(segmented.forward(k, inputs[k], key));
        inputs.push_back(boundaries[k].values);
        if (recompute) boundaries[k].producers.clear();
    }
    segmented.store_states(boundaries.back());
    const double loss = loss_of(boundaries.back());
    for (size_t k = count; k-- > 0;) {
        if (recompute) {
            std::vector<at::Tensor> before;
            for (size_t b = 0; b < segmented.segments()[k].buffers.size(); ++b)
                before.push_back(buffer(k, b).clone());
            boundaries[k].producers = segmented.forward(k, inputs[k], key).producers;
            const at::NoGradGuard no_grad;
            for (size_t b = 0; b < before.size(); ++b) buffer(k, b).data().copy_(before[b]);
        }
        if (k + 1 == count) {
            SegmentedModel::backward_loss(boundaries[k], 1.0);
        } else {
            SegmentedModel::backward(boundaries[k]);
        }
    }
    return collect(segmented, loss);
}

inline std::string tensor_difference(const std::string& what,
                                     const std::map<std::string, at::Tensor>& a,
                                     const std::map<std::string, at::Tensor>& b) {
    if (a.size() != b.size()) return fmt::format("{} {}s against {}", a.size(), what, b.size());
    for (const auto& [name, tensor] : a) {
        const auto found = b.find(name);
        if (found == b.end()) return fmt::format("no {} {}", what, name);
        if (!at::equal(tensor, found->second))
            return fmt::format("{} {} differs by {}", what, name,
                               (tensor - found->second).abs().max().to(at::kDouble).item<double>());
    }
    return "";
}

// Returns "" if loss, gradients, buffers and states are equal bit for bit, else a text about the
// difference.
inline std::string difference(const RunResult& a, const RunResult& b) {
    if (!(a.loss == b.loss)) return fmt::format("loss {} against {}", a.loss, b.loss);
    if (std::string text = tensor_difference("gradient", a.gradients, b.gradients); !text.empty())
        return text;
    if (std::string text = tensor_difference("buffer", a.buffers, b.buffers); !text.empty())
        return text;
    for (const auto& [name, text] : a.states)
        if (b.states.at(name) != text)
            return fmt::format("state {}: {} against {}", name, text, b.states.at(name));
    return "";
}

}  // namespace dslaunch::test
