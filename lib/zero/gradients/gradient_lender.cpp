#include "zero/gradients/gradient_lender.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>

#include "base/check.h"
#include "zero/gradients/accumulate_node.h"

namespace dslaunch::zero {

using torch::autograd::Node;

namespace {

constexpr int kAgreementsMin = 2;
// The largest number of edges in autograd's graph between an operator's node and its weight. At
// most one transposition or a few views lie between the two.
constexpr int kHopsMax = 4;
// While the hook runs, two owners hold a gradient's storage: autograd's tensor, and the tensor that
// we took from .grad.
constexpr size_t kOwnersInHook = 2;

// Returns the leaf that receives NODE's result, directly or through nodes such as views. Returns
// nullptr if the leaf is more than kHopsMax edges away, or if the result may also go elsewhere.
// Sets HOPS to the number of edges from NODE to the leaf's AccumulateGrad.
const c10::TensorImpl* follow(Node* node, int& hops) {
    for (hops = 0; node != nullptr && hops <= kHopsMax; ++hops) {
        if (const c10::TensorImpl* leaf = leaf_of(*node)) return leaf;
        if (node->num_inputs() != 1 || node->num_outputs() != 1) return nullptr;
        node = node->next_edge(0).function.get();
    }
    return nullptr;
}

bool same_geometry(const at::Tensor& a, const at::Tensor& b) {
    return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
           a.strides() == b.strides();
}

}  // namespace

void GradientLender::add_slice(const at::Tensor& parameter, const at::Tensor& view) {
    slice_of_[parameter.unsafeGetTensorImpl()] = slices_.size();
    Slice slice;
    slice.view = view;
    slice.memory = view.data_ptr();
    slice.bytes = view.nbytes();
    slices_.push_back(std::move(slice));
}

void GradientLender::enter(Node& node) {
    node_ = &node;
    node_index_ = ++node_count_;
    ordinal_ = 0;
    first_target_ = targets_.size();
    const auto lead_to = [&](const c10::TensorImpl* leaf, int hops) {
        if (leaf == nullptr) return;
        const auto found = slice_of_.find(leaf);
        if (found != slice_of_.end()) targets_.push_back({node_index_, found->second, hops});
    };
    // NODE itself may be the AccumulateGrad of a leaf: such a node allocates memory when it clones
    // a gradient.
    lead_to(leaf_of(node), -1);
    for (const torch::autograd::Edge& edge : node.next_edges()) {
        int hops = 0;
        const c10::TensorImpl* const leaf = follow(edge.function.get(), hops);
        lead_to(leaf, hops);
    }
}

void* GradientLender::lend(size_t bytes) {
    const std::shared_ptr<Node> node = torch::autograd::get_current_node();
    if (node == nullptr) {
        node_ = nullptr;
        node_index_ = 0;
        first_target_ = targets_.size();
    } else if (node.get() != node_) {
        enter(*node);
    }
    const int ordinal = ordinal_++;
    for (size_t i = first_target_; i < targets_.size(); ++i) {
        Slice& slice = slices_[targets_[i].slice];
        if (!slice.open || slice.lent || slice.bytes != bytes) continue;
        if (slice.agreements < kAgreementsMin) continue;
        if (slice.learnt != Position{targets_[i].hops, ordinal}) continue;
        slice.lent = true;
        lent_.push_back(targets_[i].slice);
        return slice.memory;
    }
    return nullptr;
}

void GradientLender::note(const void* memory) {
    allocations_.push_back({memory, node_index_, ordinal_ - 1});
}

bool GradientLender::find_position(size_t slice, const void* memory, Position& position) const {
    // Freed memory is used again, so several allocations may have this address. The gradient is in
    // the last one.
    const auto made =
        std::find_if(allocations_.rbegin(), allocations_.rend(),
                     [&](const Allocation& allocation) { return allocation.memory == memory; });
    if (made == allocations_.rend()) return false;
    const auto target =
        std::find_if(targets_.rbegin(), targets_.rend(), [&](const Target& candidate) {
            return candidate.node == made->node && candidate.slice == slice;
        });
    if (target == targets_.rend()) return false;
    position = {target->hops, made->ordinal};
    return true;
}

void GradientLender::learn(Slice& slice, size_t index, const at::Tensor& gradient) {
    Position position;
    if (!same_geometry(gradient, slice.view) || gradient.storage_offset() != 0 ||
        gradient.storage().nbytes() != slice.bytes ||
        !find_position(index, gradient.storage().data(), position)) {
        slice.agreements = 0;
        return;
    }
    slice.agreements = slice.agreements > 0 && position == slice.learnt ? kAgreementsMin : 1;
    slice.learnt = position;
}

GradientLender::Arrival GradientLender::arrive(size_t index, const at::Tensor& gradient) {
    Slice& slice = slices_[index];
    const void* const memory = gradient.has_storage() ? gradient.storage().data() : nullptr;
    if (memory == slice.memory && runtime::is_lent(memory)) {
        const bool in_place = gradient.storage_offset() == 0 && same_geometry(gradient, slice.view);
        const bool shared = gradient.storage().use_count() > kOwnersInHook;
        if (!in_place || shared) {
            runtime::keep_in_own_memory(gradient);
            slice.agreements = 0;
        } else {
            lent_bytes_ += static_cast<int64_t>(slice.bytes);
        }
        return in_place ? Arrival::kInPlace : Arrival::kElsewhere;
    }
    if (slice.lent || memory == nullptr) {
        slice.agreements = 0;
    } else {
        learn(slice, index, gradient);
    }
    runtime::keep_in_own_memory(gradient);
    return runtime::is_lent(slice.memory) ? Arrival::kOccupied : Arrival::kElsewhere;
}

void GradientLender::end_backward() {
    for (const size_t slice : lent_) {
        slices_[slice].lent = false;
        DSL_CHECK(!runtime::is_lent(slices_[slice].memory),
                  "memory lent for a gradient is still in use after the backward pass");
    }
    lent_.clear();
    allocations_.clear();
    targets_.clear();
    node_ = nullptr;
    node_index_ = node_count_ = 0;
    first_target_ = 0;
}

}  // namespace dslaunch::zero
