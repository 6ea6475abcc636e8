// The part of Model that makes buffers of what forward writes.
#include "graph/archive/model.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "graph/memory/shared_storage.h"

namespace dslaunch::graph {

namespace {

[[noreturn]] void refuse_late(const std::string& what) {
    fail(ExitCode::kInput,
         "in evaluation forward writes {}, which it does not write in training: write it in both, "
         "or only where self.training is true",
         what);
}

}  // namespace

int Model::hold_as_buffer(int index) {
    ModelParameter held = parameters_[index];
    DSL_CHECK(!held.packed, "{} is packed", held.name);
    held.tensor.set_requires_grad(false);
    if (state_is_settled_) refuse_late(fmt::format("parameter `{}`", printable(held.name)));
    const int buffer = static_cast<int>(buffers_.size());
    parameters_.erase(parameters_.begin() + index);
    parameter_of_.erase(held.tensor.unsafeGetTensorImpl());
    for (auto& [tensor, other] : parameter_of_) other -= other > index ? 1 : 0;
    buffer_of_.emplace(held.tensor.unsafeGetTensorImpl(), buffer);
    ModelBuffer& made = buffers_.emplace_back();
    made.name = held.name;
    made.aliases = held.aliases;
    made.tensor = held.tensor;
    made.is_loose = held.is_loose;
    made.origin = ModelBuffer::Origin::kParameter;
    return buffer;
}

int Model::hold_constant(const at::Tensor& tensor) {
    int constants = 0;
    for (size_t b = 0; b < buffers_.size(); ++b) {
        if (buffers_[b].origin != ModelBuffer::Origin::kConstant) continue;
        ++constants;
        // Each reading of an attribute makes a constant of its own, in the same memory.
        if (is_same_view(buffers_[b].tensor, tensor)) return static_cast<int>(b);
    }
    const std::string name = fmt::format("constant.{}", constants);
    if (state_is_settled_) refuse_late(fmt::format("tensor {} of its code", name));
    buffer_of_.emplace(tensor.unsafeGetTensorImpl(), static_cast<int>(buffers_.size()));
    ModelBuffer& made = buffers_.emplace_back();
    made.name = name;
    made.tensor = tensor;
    made.persistent = false;
    made.origin = ModelBuffer::Origin::kConstant;
    return static_cast<int>(buffers_.size()) - 1;
}

void Model::hold_like(const Model& other, bool with_constants) {
    for (const ModelBuffer& buffer : other.buffers_) {
        if (buffer.origin == ModelBuffer::Origin::kParameter) {
            const auto found = std::ranges::find(parameters_, buffer.name, &ModelParameter::name);
            DSL_CHECK(found != parameters_.end(), "no parameter {}", buffer.name);
            hold_as_buffer(static_cast<int>(found - parameters_.begin()));
        } else if (buffer.origin == ModelBuffer::Origin::kConstant && with_constants) {
            static_cast<void>(hold_constant(buffer.tensor));
        }
    }
}

}  // namespace dslaunch::graph
