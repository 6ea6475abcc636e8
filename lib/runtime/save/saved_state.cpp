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
#include "graph/adapter/linear_layers.h"
#include "graph/archive/scalar_types.h"
#include "graph/memory/memory_order.h"
#include "plan/layout/tensor_share.h"

namespace dslaunch::runtime {

namespace {

void check_shape(const std::string& folder, const storage::CheckpointTensor& saved,
                 const at::Tensor& tensor) {
    if (saved.shape == tensor.sizes().vec()) return;
    fail(ExitCode::kCheckpoint,
         "{}: {} has the shape [{}] in the checkpoint, but [{}] in the model; the checkpoint is of "
         "another model",
         folder, saved.name, fmt::join(saved.shape, ", "), fmt::join(tensor.sizes(), ", "));
}

// Returns true if the weights of A and B have the same pieces with the same hashes.
bool have_equal_hashes(const storage::Checkpoint& checkpoint, int a, int b) {
    std::vector<std::pair<Range, storage::Hash128>> of_a, of_b;
    for (const storage::CheckpointFile& file : checkpoint.files)
        for (const storage::WrittenPiece& written : file.pieces)
            if (written.piece.state == storage::kWeights) {
                if (written.piece.tensor == a)
                    of_a.emplace_back(written.piece.elements, written.hash);
                if (written.piece.tensor == b)
                    of_b.emplace_back(written.piece.elements, written.hash);
            }
    return of_a == of_b;
}

bool have_equal_bits(const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor rows_a = a.contiguous(), rows_b = b.contiguous();
    return rows_a.scalar_type() == rows_b.scalar_type() && rows_a.numel() == rows_b.numel() &&
           std::memcmp(rows_a.const_data_ptr(), rows_b.const_data_ptr(), rows_a.nbytes()) == 0;
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
             "{}: the checkpoint's optimizer {} keeps [{}] for each parameter, but this run's "
             "optimizer keeps [{}]; resume with the same optimizer, or start from the checkpoint's "
             "weights (`dslaunch ckpt export`)",
             folder, checkpoint_.optimizer, fmt::join(of_optimizer, ", "), fmt::join(states, ", "));
    Found found{std::vector<char>(checkpoint_.tensors.size(), 0), {}};
    for (size_t i = 0; i < homes_.size(); ++i) {
        const graph::ModelParameter& parameter = model.parameters()[i];
        homes_[i] = find(wanted(static_cast<int>(i), -1), found);
        if (homes_[i].tensor < 0 && !parameter.may_be_unsaved(leaves_out_frozen))
            found.missing.push_back(parameter.name);
    }
    for (int b = 0; b < std::ssize(model.buffers()); ++b) find_buffer(b, found);
    std::vector<std::string> extra;
    for (size_t t = 0; t < found.used.size(); ++t) {
        const storage::CheckpointTensor& tensor = checkpoint_.tensors[t];
        if (found.used[t] == 0 && tensor.kind != storage::TensorKind::kRankBuffer &&
            !model.is_unsaved(tensor.name))
            extra.push_back(tensor.name);
    }
    if (found.missing.empty() && extra.empty()) return;
    fail(ExitCode::kCheckpoint, "{}: the checkpoint is of another model:{}{}", folder,
         found.missing.empty() ? "" : fmt::format(" it lacks {};", some_of(found.missing)),
         extra.empty() ? "" : fmt::format(" the model lacks {}", some_of(extra)));
}

SavedState::Wanted SavedState::wanted(int parameter, int buffer) const {
    Wanted wanted;
    const auto take = [&](const auto& item) {
        wanted.names = item.aliases;
        wanted.names.insert(wanted.names.begin(), item.name);
        wanted.tensor = item.tensor;
    };
    if (parameter >= 0) {
        take(model_.parameters()[parameter]);
        // The model of a folder has one name for a table that is its output layer too; the
        // state_dict in PyTorch has both.
        if (const std::string head = graph::tied_head_of(model_, parameter); !head.empty())
            wanted.names.push_back(head + ".weight");
    } else {
        take(model_.buffers()[buffer]);
    }
    for (const graph::ModelView& view : model_.views()) {
        if (!view.owner.is_same(wanted.tensor) || view.name.empty()) continue;
        if (view.view.is_same()) {
            wanted.names.push_back(view.name);
        } else {
            wanted.views.push_back(&view);
        }
    }
    return wanted;
}

// Returns the checkpoint's tensor for WANTED: a tensor with one of its names, or a view of all its
// elements. If PART_DOES is true, a view of some of its elements is enough.
SavedState::Home SavedState::find(const Wanted& wanted, Found& found, bool part_does) const {
    Home home;
    const auto take = [&](int tensor, const graph::ModelView* view) {
        if (tensor < 0 || tensor == home.tensor) return;
        found.used[tensor] = 1;
        check_shape(reader_.folder(), checkpoint_.tensors[tensor],
                    view == nullptr ? wanted.tensor : view->tensor);
        if (home.tensor >= 0) return require_equal(wanted, home, tensor, view);
        if (view != nullptr && !view->view.is_whole() && !part_does) return;
        home.tensor = tensor;
        home.view = view;
        home.other_strides = view != nullptr || checkpoint_.tensors[tensor].strides !=
                                                    graph::strides_in_memory(wanted.tensor);
    };
    for (const std::string& name : wanted.names) take(checkpoint_.find(name), nullptr);
    for (const graph::ModelView* view : wanted.views) take(checkpoint_.find(view->name), view);
    return home;
}

void SavedState::find_buffer(int index, Found& found) {
    const graph::ModelBuffer& buffer = model_.buffers()[index];
    Home& home = buffer_homes_.emplace_back();
    const Wanted all = wanted(-1, index);
    if (!buffer.is_persistent) {
        // The buffer keeps the value from the model's archive, with two exceptions: the
        // checkpoint's run has changed the buffer, or a view of it is part of the state_dict.
        const int tensor = checkpoint_.find(buffer.name);
        const bool moved = tensor >= 0 && !checkpoint_.tensors[tensor].is_persistent;
        if (moved || std::ranges::any_of(all.views, &graph::ModelView::is_persistent))
            home = find(all, found, /*part_does=*/true);
        return;
    }
    home = find(all, found);
    if (home.tensor >= 0) return;
    if (model_.says_persistence()) {
        found.missing.push_back(buffer.name);
    } else {
        buffers_of_archive_.push_back(buffer.name);
    }
}

// Throws if tensor OTHER of the checkpoint and the tensor at HOME have different values although
// they are one tensor in the model. OTHER contains VIEW of WANTED, or all of WANTED if VIEW is
// null.
void SavedState::require_equal(const Wanted& wanted, const Home& home, int other,
                               const graph::ModelView* view) const {
    const storage::CheckpointTensor& first = checkpoint_.tensors[home.tensor];
    const storage::CheckpointTensor& second = checkpoint_.tensors[other];
    if (view == home.view && first.strides == second.strides &&
        have_equal_hashes(checkpoint_, home.tensor, other))
        return;
    const at::Tensor values = laid_out(home, wanted.tensor, storage::kWeights);
    if (have_equal_bits(view == nullptr ? values : view->view.of(values),
                        whole(other, storage::kWeights)))
        return;
    fail(ExitCode::kCheckpoint,
         "{}: {} and {} are one tensor in the model, but have different values in the checkpoint: "
         "resume with the model that wrote the checkpoint, in which they are two tensors",
         reader_.folder(), first.name, second.name);
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
    const bool is_like = checkpoint_.tensors[home.tensor].is_like_tensor(state);
    if (!is_like && home.view != nullptr)
        fail(ExitCode::kCheckpoint,
             "{0}: the optimizer's states of {1} are statistics of the rows and columns of {2}, "
             "but in the model {2} is only a view of {1}; start from the checkpoint's weights "
             "(`dslaunch ckpt export`)",
             reader_.folder(), model_.parameters()[parameter].name,
             checkpoint_.tensors[home.tensor].name);
    if (!home.other_strides || !is_like) {
        reader_.for_each(home.tensor, state, elements,
                         [&](const Range& part, std::span<const std::byte> bytes) {
                             convert(bytes.data(), stored,
                                     into + (part.begin - elements.begin) * dtype_bytes(dtype),
                                     dtype, part.numel);
                         });
        return;
    }
    if (reordered_tensor_ != home.tensor || reordered_state_ != state) {
        reordered_ = laid_out(home, model_.parameters()[parameter].tensor, state);
        reordered_tensor_ = home.tensor;
        reordered_state_ = state;
    }
    const auto* const from = static_cast<const std::byte*>(reordered_.const_data_ptr());
    convert(from + elements.begin * dtype_bytes(stored), stored, into, dtype, elements.numel);
}

// Returns the values at HOME with LIKE's shape and memory order.
at::Tensor SavedState::laid_out(const Home& home, const at::Tensor& like, int state) const {
    const at::NoGradGuard no_grad;
    const at::Tensor values = whole(home.tensor, state);
    const std::vector<int64_t> strides = graph::strides_in_memory(like);
    const at::Tensor laid = strides.empty()
                                ? at::empty(like.sizes(), values.options())
                                : at::empty_strided(like.sizes(), strides, values.options());
    (home.view == nullptr ? laid : home.view->view.of(laid)).copy_(values);
    return laid;
}

// Returns a whole tensor, with the shape and strides with which it was saved.
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

void SavedState::restore(at::Tensor tensor, const Home& home) {
    if (tensor.numel() == 0) return;
    const at::NoGradGuard no_grad;
    const at::Tensor saved = home.view == nullptr ? whole(home.tensor, storage::kWeights)
                                                  : laid_out(home, tensor, storage::kWeights);
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
        restore(model_.parameters()[parameter].tensor, homes_[parameter]);
        static_cast<void>(model_.release_pages(parameter));
    }
    int saved_replicas = 1;
    for (const storage::CheckpointTensor& tensor : checkpoint_.tensors)
        if (tensor.kind == storage::TensorKind::kRankBuffer)
            saved_replicas = std::max(saved_replicas, tensor.rank + 1);
    for (size_t b = 0; b < buffer_homes_.size(); ++b) {
        Home home = buffer_homes_[b];
        if (home.tensor < 0) continue;
        const std::string& name = checkpoint_.tensors[home.tensor].name;
        for (size_t t = 0; saved_replicas == replicas && t < checkpoint_.tensors.size(); ++t) {
            const storage::CheckpointTensor& own = checkpoint_.tensors[t];
            if (own.kind == storage::TensorKind::kRankBuffer && own.rank == replica &&
                own.name == name)
                home.tensor = static_cast<int>(t);
        }
        restore(model_.buffers()[b].tensor, home);
    }
}

}  // namespace dslaunch::runtime
