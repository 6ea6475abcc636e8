#include "runtime/save/saved_state.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "graph/archive/memory_order.h"
#include "graph/lower/precision.h"
#include "plan/layout/tensor_shares.h"

namespace dslaunch::runtime {

namespace {

template <typename Item>
int find_in(const storage::Checkpoint& checkpoint, const Item& item) {
    const int found = checkpoint.find(item.name);
    if (found >= 0) return found;
    for (const std::string& alias : item.aliases)
        if (const int of_alias = checkpoint.find(alias); of_alias >= 0) return of_alias;
    return -1;
}

void check_shape(const std::string& folder, const storage::CheckpointTensor& saved,
                 const at::Tensor& tensor) {
    if (saved.shape == tensor.sizes().vec()) return;
    fail(ExitCode::kCheckpoint,
         "{}: {} has the shape [{}] there and [{}] in the model: it is of another model", folder,
         saved.name, fmt::join(saved.shape, ", "), fmt::join(tensor.sizes(), ", "));
}

constexpr size_t kNamesMax = 5;

std::string some_of(const std::vector<std::string>& names) {
    const auto shown = std::min(names.size(), kNamesMax);
    std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
    if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
    return text;
}

// Converts NUMEL elements from FROM, which may have any alignment.
void convert(const std::byte* from, DType from_dtype, std::byte* into, DType dtype, int64_t numel) {
    const auto bytes = static_cast<size_t>(numel * dtype_bytes(from_dtype));
    if (from_dtype == dtype) {
        std::memcpy(into, from, bytes);
        return;
    }
    std::vector<std::byte> aligned;
    if (reinterpret_cast<uintptr_t>(from) % static_cast<size_t>(dtype_bytes(from_dtype)) != 0) {
        aligned.assign(from, from + bytes);
        from = aligned.data();
    }
    const at::NoGradGuard no_grad;
    at::from_blob(into, {numel}, graph::scalar_type_of(dtype))
        .copy_(at::from_blob(const_cast<std::byte*>(from), {numel},
                             graph::scalar_type_of(from_dtype)));
}

}  // namespace

SavedState::SavedState(const storage::CheckpointReader& reader, const graph::Model& model,
                       const std::vector<std::string>& states, bool leaves_out_frozen)
    : reader_(reader),
      checkpoint_(reader.checkpoint()),
      model_(model),
      homes_(model.parameters().size()) {
    const std::string& folder = reader.folder();
    std::vector<std::string> of_optimizer = checkpoint_.states;
    std::erase_if(of_optimizer, storage::is_further_state);
    if (!checkpoint_.states.empty() && of_optimizer != states)
        fail(ExitCode::kCheckpoint,
             "{}: its optimizer {} keeps [{}] of each parameter, this run's keeps [{}]; resume "
             "with the same optimizer, or start anew from its weights (`dslaunch ckpt export`)",
             folder, checkpoint_.optimizer, fmt::join(of_optimizer, ", "), fmt::join(states, ", "));
    std::vector<std::string> missing;
    std::vector<char> used(checkpoint_.tensors.size(), 0);
    const auto take = [&](const auto& item) {
        const int tensor = find_in(checkpoint_, item);
        if (tensor < 0) {
            missing.push_back(item.name);
            return -1;
        }
        check_shape(folder, checkpoint_.tensors[tensor], item.tensor);
        used[tensor] = 1;
        return tensor;
    };
    for (size_t i = 0; i < homes_.size(); ++i) {
        const graph::ModelParameter& parameter = model.parameters()[i];
        const bool may_lack = leaves_out_frozen && !parameter.tensor.requires_grad();
        if (may_lack && find_in(checkpoint_, parameter) < 0) continue;
        homes_[i].tensor = take(parameter);
        if (homes_[i].tensor >= 0)
            homes_[i].other_strides = checkpoint_.tensors[homes_[i].tensor].strides !=
                                      graph::strides_in_memory(parameter.tensor);
    }
    for (const graph::ModelBuffer& buffer : model.buffers()) take(buffer);
    std::vector<std::string> extra;
    for (size_t t = 0; t < used.size(); ++t)
        if (used[t] == 0 && checkpoint_.tensors[t].kind != storage::TensorKind::kRankBuffer)
            extra.push_back(checkpoint_.tensors[t].name);
    if (missing.empty() && extra.empty()) return;
    fail(ExitCode::kCheckpoint, "{}: it is of another model:{}{}", folder,
         missing.empty() ? "" : fmt::format(" it lacks {};", some_of(missing)),
         extra.empty() ? "" : fmt::format(" the model lacks {}", some_of(extra)));
}

bool SavedState::has_states(int parameter) const {
    const int tensor = homes_[parameter].tensor;
    return !checkpoint_.states.empty() &&
           checkpoint_.tensors[tensor].kind == storage::TensorKind::kTrained;
}

int64_t SavedState::updates(int parameter) const {
    return checkpoint_.tensors[homes_[parameter].tensor].updates;
}

void SavedState::read_weights(int parameter, const Range& elements, std::byte* into, DType dtype) {
    read(parameter, storage::kWeights, elements, into, dtype);
}

void SavedState::read_state(int parameter, int k, const Range& elements, float* into) {
    DSL_CHECK(has_states(parameter), "parameter {} has no states", parameter);
    read(parameter, k, elements, reinterpret_cast<std::byte*>(into), DType::kF32);
}

void SavedState::read(int parameter, int state, const Range& elements, std::byte* into,
                      DType dtype) {
    const plan::TensorParameter* const of_group =
        tensor_plan_ == nullptr ? nullptr : &tensor_plan_->parameters[parameter];
    if (of_group == nullptr || of_group->rule == plan::TensorRule::kReplicated)
        return read_whole(parameter, state, elements, into, dtype);
    plan::TensorShare(*of_group, part_)
        .for_each(elements, [&](int64_t begin, const Range& in_whole) {
            read_whole(parameter, state, in_whole,
                       into + (begin - elements.begin) * dtype_bytes(dtype), dtype);
        });
}

void SavedState::read_whole(int parameter, int state, const Range& elements, std::byte* into,
                            DType dtype) {
    const Home& home = homes_[parameter];
    const DType stored =
        state == storage::kWeights ? checkpoint_.tensors[home.tensor].dtype : DType::kF32;
    if (!home.other_strides) {
        reader_.for_each(home.tensor, state, elements,
                         [&](const Range& part, std::span<const std::byte> bytes) {
                             convert(bytes.data(), stored,
                                     into + (part.begin - elements.begin) * dtype_bytes(dtype),
                                     dtype, part.numel);
                         });
        return;
    }
    if (reordered_tensor_ != home.tensor || reordered_state_ != state) {
        const at::Tensor& like = model_.parameters()[parameter].tensor;
        at::Tensor values = whole(home.tensor, state);
        reordered_ = at::empty_strided(like.sizes(), like.strides(), values.options());
        reordered_.copy_(values);
        reordered_tensor_ = home.tensor;
        reordered_state_ = state;
    }
    const auto* const from = static_cast<const std::byte*>(reordered_.const_data_ptr());
    convert(from + elements.begin * dtype_bytes(stored), stored, into, dtype, elements.numel);
}

// Returns the tensor with the shape and strides that it was saved with.
at::Tensor SavedState::whole(int tensor, int state) const {
    const storage::CheckpointTensor& saved = checkpoint_.tensors[tensor];
    const at::ScalarType type =
        state == storage::kWeights ? graph::scalar_type_of(saved.dtype) : at::ScalarType::Float;
    const at::NoGradGuard no_grad;
    at::Tensor values = saved.strides.empty() ? at::empty(saved.shape, type)
                                              : at::empty_strided(saved.shape, saved.strides, type);
    auto* const into = static_cast<std::byte*>(values.data_ptr());
    const auto element = static_cast<int64_t>(values.element_size());
    reader_.for_each(tensor, state, {0, saved.numel()},
                     [&](const Range& part, std::span<const std::byte> bytes) {
                         std::memcpy(into + part.begin * element, bytes.data(), bytes.size());
                     });
    return values;
}

void SavedState::restore(at::Tensor tensor, int from) {
    if (tensor.numel() == 0) return;
    const at::NoGradGuard no_grad;
    const at::Tensor saved = whole(from, storage::kWeights);
    at::Tensor values = tensor.detach();
    const bool same = values.is_cpu() && saved.scalar_type() == values.scalar_type() &&
                      values.is_contiguous() && saved.is_contiguous() &&
                      std::memcmp(saved.const_data_ptr(), values.const_data_ptr(),
                                  static_cast<size_t>(values.nbytes())) == 0;
    if (!same) values.copy_(saved);
}

void SavedState::restore_untrained(const std::vector<int>& parameters, int replica, int replicas) {
    for (const int parameter : parameters) {
        if (homes_[parameter].tensor < 0) continue;
        restore(model_.parameters()[parameter].tensor, homes_[parameter].tensor);
        static_cast<void>(model_.release_pages(parameter));
    }
    int saved_replicas = 1;
    for (const storage::CheckpointTensor& tensor : checkpoint_.tensors)
        if (tensor.kind == storage::TensorKind::kRankBuffer)
            saved_replicas = std::max(saved_replicas, tensor.rank + 1);
    for (const graph::ModelBuffer& buffer : model_.buffers()) {
        int from = find_in(checkpoint_, buffer);
        for (size_t t = 0; saved_replicas == replicas && t < checkpoint_.tensors.size(); ++t) {
            const storage::CheckpointTensor& own = checkpoint_.tensors[t];
            if (own.kind == storage::TensorKind::kRankBuffer && own.rank == replica &&
                own.name == buffer.name)
                from = static_cast<int>(t);
        }
        restore(buffer.tensor, from);
    }
}

}  // namespace dslaunch::runtime
