#include "graph/memory/memory_view.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <numeric>

namespace dslaunch::graph {

namespace {

struct Dimension {
    int64_t stride = 0;
    int64_t extent = 1;
    bool operator==(const Dimension&) const = default;
};

// Returns the dimensions of TENSOR from the largest stride to the smallest.
std::vector<int64_t> order_in_memory(const at::Tensor& tensor) {
    std::vector<int64_t> order(static_cast<size_t>(tensor.dim()));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::ranges::stable_sort(
        order, [&](int64_t a, int64_t b) { return tensor.stride(a) > tensor.stride(b); });
    return order;
}

// Returns the dimensions that have more than one element, in memory order.
std::vector<Dimension> dimensions_of(const at::Tensor& tensor) {
    std::vector<Dimension> dimensions;
    for (const int64_t d : order_in_memory(tensor))
        if (tensor.size(d) > 1) dimensions.push_back({tensor.stride(d), tensor.size(d)});
    return dimensions;
}

bool is_expanded(const std::vector<Dimension>& dimensions) {
    return std::ranges::any_of(dimensions, [](const Dimension& d) { return d.stride == 0; });
}

std::vector<int64_t> sizes_in_memory(const at::Tensor& tensor) {
    std::vector<int64_t> sizes;
    for (const int64_t d : order_in_memory(tensor)) sizes.push_back(tensor.size(d));
    return sizes;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& order) {
    std::vector<int64_t> places(order.size());
    for (size_t i = 0; i < order.size(); ++i)
        places[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    return places;
}

// Returns the number of elements of memory that a tensor with these dimensions spans, with all gaps
// between its elements.
int64_t reach(std::vector<Dimension>::const_iterator begin,
              std::vector<Dimension>::const_iterator end) {
    int64_t last = 0;
    for (; begin != end; ++begin) last += (begin->extent - 1) * begin->stride;
    return last + 1;
}

// Returns TENSOR with a single element in each dimension that expand() repeats.
at::Tensor not_expanded(const at::Tensor& tensor) {
    at::Tensor narrow = tensor.detach();
    for (int64_t d = 0; d < narrow.dim(); ++d)
        if (narrow.stride(d) == 0 && narrow.size(d) > 1) narrow = narrow.narrow(d, 0, 1);
    return narrow;
}

}  // namespace

void MemoryView::add_permute(std::vector<int64_t> order) {
    if (std::ranges::is_sorted(order)) return;
    // Two dimensions use kTranspose: tensor parallelism and adapters recognize it as a transposed
    // weight.
    const auto op = order.size() == 2 ? Operator::kTranspose : Operator::kPermute;
    steps_.push_back({op, std::move(order)});
}

std::optional<MemoryView> MemoryView::make(const at::Tensor& base, const at::Tensor& expanded) {
    const at::Tensor view = not_expanded(expanded);
    std::optional<MemoryView> made = make_plain(base, view);
    if (!made || view.sizes() == expanded.sizes()) return made;
    made->steps_.push_back({Operator::kExpand, expanded.sizes().vec()});
    made->is_whole_ = false;
    return made;
}

std::optional<MemoryView> MemoryView::make_plain(const at::Tensor& base, const at::Tensor& view) {
    if (base.scalar_type() != view.scalar_type() || base.numel() == 0 || view.numel() == 0)
        return std::nullopt;
    MemoryView made;
    const int64_t begin = view.storage_offset() - base.storage_offset();
    if (begin == 0 && base.sizes() == view.sizes() && base.strides() == view.strides()) {
        made.is_whole_ = true;
        return made;
    }
    const std::vector<Dimension> of_base = dimensions_of(base), of_view = dimensions_of(view);
    if (is_expanded(of_base)) return std::nullopt;
    const int64_t extent = reach(of_view.begin(), of_view.end());
    const bool dense = base.is_non_overlapping_and_dense();
    const bool same_places = begin == 0 && of_base == of_view;
    if (!same_places && (!dense || begin < 0 || begin + extent > base.numel())) return std::nullopt;
    const bool view_is_dense = view.is_non_overlapping_and_dense();
    made.is_whole_ = same_places || (view_is_dense && view.numel() == base.numel());

    std::vector<int64_t> sizes = sizes_in_memory(base);  // after the steps so far
    made.add_permute(order_in_memory(base));
    const auto reshape = [&](const std::vector<int64_t>& wanted) {
        if (sizes != wanted) made.steps_.push_back({Operator::kReshape, wanted});
        sizes = wanted;
    };
    if (!made.is_whole_) {
        reshape({base.numel()});
        made.steps_.push_back({Operator::kSlice, {begin, begin + extent, 1}});
        sizes = {extent};
        for (auto d = of_view.begin(); !view_is_dense && d != of_view.end(); ++d) {
            const int64_t inner = reach(d + 1, of_view.end());
            if (d + 1 == of_view.end()) {
                made.steps_.push_back(
                    {Operator::kSlice, {0, (d->extent - 1) * d->stride + 1, d->stride}});
                sizes.back() = d->extent;
            } else {
                made.steps_.push_back({Operator::kUnfold, {inner, d->stride}});
                sizes.back() = d->extent;
                sizes.push_back(inner);
            }
        }
    }
    reshape(sizes_in_memory(view));
    made.add_permute(inverse(order_in_memory(view)));
    return made;
}

at::Tensor MemoryView::of(const at::Tensor& base) const {
    at::Tensor made = base;
    for (const Step& step : steps_) {
        const std::vector<int64_t>& n = step.numbers;
        switch (step.op) {
            case Operator::kTranspose:
                made = made.t();
                break;
            case Operator::kPermute:
                made = made.permute(n);
                break;
            case Operator::kReshape:
                made = made.reshape(n);
                break;
            case Operator::kSlice:
                made = made.slice(-1, n[0], n[1], n[2]);
                break;
            case Operator::kUnfold:
                made = made.unfold(-1, n[0], n[1]);
                break;
            case Operator::kExpand:
                made = made.expand(n);
                break;
        }
    }
    return made;
}

Value* MemoryView::insert(Graph& graph, Value* base) const {
    static const Symbol symbols[] = {aten::t,     aten::permute, aten::reshape,
                                     aten::slice, aten::unfold,  aten::expand};
    Value* made = base;
    for (const Step& step : steps_) {
        std::vector<NamedValue> arguments = {made};
        if (step.op == Operator::kSlice || step.op == Operator::kUnfold) {
            arguments.emplace_back(int64_t{-1});
            for (const int64_t number : step.numbers) arguments.emplace_back(number);
        } else if (step.op != Operator::kTranspose) {
            arguments.emplace_back(step.numbers);
        }
        made = graph.insert(symbols[static_cast<size_t>(step.op)], arguments);
    }
    return made;
}

}  // namespace dslaunch::graph
