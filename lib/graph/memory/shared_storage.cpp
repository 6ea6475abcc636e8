#include "graph/memory/shared_storage.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::graph {

namespace {

// The bytes [BEGIN, END) of a storage.
struct Reach {
    int64_t begin = 0;
    int64_t end = 0;
};

Reach reach_of(const at::Tensor& tensor) {
    int64_t last = tensor.storage_offset();
    for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
    const int64_t bytes = static_cast<int64_t>(tensor.element_size());
    return {tensor.storage_offset() * bytes, (last + 1) * bytes};
}

// Calls USE with the offset in the storage of each element of TENSOR, until USE returns false.
bool for_places(const at::Tensor& tensor, int64_t dimension, int64_t place,
                const std::function<bool(int64_t)>& use) {
    if (dimension == tensor.dim()) return use(place);
    for (int64_t i = 0; i < tensor.size(dimension); ++i)
        if (!for_places(tensor, dimension + 1, place + i * tensor.stride(dimension), use))
            return false;
    return true;
}

}  // namespace

bool overlap(const at::Tensor& a, const at::Tensor& b) {
    if (a.storage().data() != b.storage().data() || a.numel() == 0 || b.numel() == 0) return false;
    const Reach of_a = reach_of(a), of_b = reach_of(b);
    if (of_a.begin >= of_b.end || of_b.begin >= of_a.end) return false;
    if (a.is_non_overlapping_and_dense() && b.is_non_overlapping_and_dense()) return true;
    if (a.element_size() != b.element_size()) return true;
    const int64_t first = a.storage_offset();
    std::vector<bool> taken(static_cast<size_t>(of_a.end - of_a.begin) / a.element_size());
    for_places(a, 0, 0, [&](int64_t place) {
        taken[static_cast<size_t>(place)] = true;
        return true;
    });
    return !for_places(b, 0, b.storage_offset() - first, [&](int64_t place) {
        return place < 0 || place >= std::ssize(taken) || !taken[static_cast<size_t>(place)];
    });
}

bool is_same_view(const at::Tensor& a, const at::Tensor& b) {
    return a.storage().data() == b.storage().data() && a.storage_offset() == b.storage_offset() &&
           a.sizes() == b.sizes() && a.strides() == b.strides() &&
           a.scalar_type() == b.scalar_type();
}

namespace {

class Homes {
  public:
    explicit Homes(const std::vector<SharingTensor>& tensors)
        : tensors_(tensors), homes_(tensors.size()) {
        std::map<const void*, std::vector<int>> by_storage;
        for (int i = 0; i < std::ssize(tensors); ++i) {
            homes_[static_cast<size_t>(i)].owner = i;
            const at::Tensor& tensor = tensors[static_cast<size_t>(i)].tensor;
            if (tensor.has_storage() && tensor.numel() > 0)
                by_storage[tensor.storage().data()].push_back(i);
        }
        for (auto& [storage, members] : by_storage)
            if (members.size() > 1) split(members);
    }

    [[nodiscard]] std::vector<TensorHome> take() { return std::move(homes_); }

  private:
    [[nodiscard]] const SharingTensor& at(int i) const { return tensors_[static_cast<size_t>(i)]; }
    [[nodiscard]] TensorHome& home(int i) { return homes_[static_cast<size_t>(i)]; }

    // Divides MEMBERS into sets and finds the owner of each set. Tensors that overlap are in the
    // same set, and so are tensors that are connected by a chain of overlapping tensors.
    void split(const std::vector<int>& members) {
        std::vector<int> sorted = members;
        std::ranges::stable_sort(sorted, [&](int a, int b) {
            return reach_of(at(a).tensor).begin < reach_of(at(b).tensor).begin;
        });
        std::map<int, int> set_of;  // an earlier member of the same set, or itself
        const auto first_of = [&](int i) {
            while (set_of.at(i) != i) i = set_of.at(i);
            return i;
        };
        for (const int i : sorted) set_of[i] = i;
        for (size_t a = 0; a < sorted.size(); ++a) {
            const int64_t end = reach_of(at(sorted[a]).tensor).end;
            for (size_t b = a + 1; b < sorted.size(); ++b) {
                if (reach_of(at(sorted[b]).tensor).begin >= end) break;
                const int of_a = first_of(sorted[a]), of_b = first_of(sorted[b]);
                if (of_a != of_b && overlap(at(sorted[a]).tensor, at(sorted[b]).tensor))
                    set_of[of_b] = of_a;
            }
        }
        std::map<int, std::vector<int>> sets;
        for (const int i : members) sets[first_of(i)].push_back(i);
        for (const auto& [first, set] : sets)
            if (set.size() > 1) settle(set);
    }

    void settle(const std::vector<int>& set) {
        const auto trained = std::ranges::find_if(set, [&](int i) { return at(i).is_trained(); });
        if (trained != set.end()) return settle_trained(set, *trained);
        std::vector<int> candidates = set;
        std::erase_if(candidates, [&](int i) { return at(i).name.empty(); });
        if (candidates.empty()) return;
        const auto rank = [&](int i) {
            return std::pair(-at(i).tensor.numel(), at(i).is_parameter ? 0 : 1);
        };
        std::ranges::stable_sort(candidates, [&](int a, int b) { return rank(a) < rank(b); });
        for (const int owner : candidates)
            if (views_of(owner, set)) return;
        for (const int i : set) home(i).is_loose = true;
    }

    // Makes all tensors of SET views of OWNER. Returns false, without a change, if that is not
    // possible.
    bool views_of(int owner, const std::vector<int>& set) {
        std::map<int, MemoryView> views;
        for (const int i : set) {
            if (i == owner) continue;
            std::optional<MemoryView> view = MemoryView::make(at(owner).tensor, at(i).tensor);
            if (!view) return false;
            views.emplace(i, std::move(*view));
        }
        for (auto& [i, view] : views) {
            home(i).owner = owner;
            home(i).view = std::move(view);
        }
        return true;
    }

    void settle_trained(const std::vector<int>& set, int owner) {
        for (const int i : set) {
            if (i == owner) continue;
            std::optional<MemoryView> view = MemoryView::make(at(owner).tensor, at(i).tensor);
            const bool both = at(i).is_trained();
            if (!view || (both && !view->is_whole())) refuse(set, owner, i);
            home(i).owner = owner;
            home(i).view = std::move(view);
        }
    }

    [[nodiscard]] const char* kind(int i) const {
        return at(i).is_parameter ? "parameter" : at(i).name.empty() ? "attribute" : "buffer";
    }

    [[nodiscard]] std::string described(int i) const {
        const Reach reach = reach_of(at(i).tensor);
        const auto element = static_cast<int64_t>(at(i).tensor.element_size());
        return fmt::format("{} `{}` (elements {} to {} of one storage)", kind(i),
                           printable(at(i).name), reach.begin / element, reach.end / element - 1);
    }

    // Refuses SET, because OTHER is not a view of OWNER. The message names a tensor that itself
    // overlaps OWNER.
    [[noreturn]] void refuse(const std::vector<int>& set, int owner, int other) const {
        for (const int i : set)
            if (!overlap(at(owner).tensor, at(other).tensor) && i != owner &&
                overlap(at(owner).tensor, at(i).tensor) &&
                !MemoryView::make(at(owner).tensor, at(i).tensor))
                other = i;
        const bool both = at(other).is_trained();
        fail(ExitCode::kInput,
             "the {} and the {} overlap in memory, and {}, so an update of one would change a part "
             "of the other. Give them separate memory before you save the model (`.clone()`), or "
             "let forward compute one from the other",
             described(owner), described(other),
             both ? "both are trained" : fmt::format("`{}` is trained", printable(at(owner).name)));
    }

    const std::vector<SharingTensor>& tensors_;
    std::vector<TensorHome> homes_;
};

}  // namespace

std::vector<TensorHome> find_homes(const std::vector<SharingTensor>& tensors) {
    return Homes(tensors).take();
}

std::vector<at::Tensor> copied_together(const std::vector<at::Tensor>& tensors,
                                        std::optional<at::ScalarType> dtype) {
    const at::NoGradGuard no_grad;
    const auto wanted_of = [&](const at::Tensor& tensor) {
        return tensor.is_floating_point() && dtype ? *dtype : tensor.scalar_type();
    };
    std::map<const void*, std::vector<size_t>> by_storage;
    for (size_t i = 0; i < tensors.size(); ++i)
        by_storage[tensors[i].storage().data()].push_back(i);
    std::vector<at::Tensor> copies(tensors.size());
    for (const auto& [storage, sharing] : by_storage) {
        const at::Tensor& first = tensors[sharing.front()];
        const bool one_type = std::ranges::all_of(sharing, [&](size_t other) {
            return tensors[other].scalar_type() == first.scalar_type();
        });
        const auto wanted = one_type ? wanted_of(first) : first.scalar_type();
        if (sharing.size() == 1 || storage == nullptr) {
            for (const size_t i : sharing)
                copies[i] = tensors[i].detach().to(wanted_of(tensors[i]), /*non_blocking=*/false,
                                                   /*copy=*/true);
            continue;
        }
        const auto numel = static_cast<int64_t>(first.storage().nbytes() / first.element_size());
        const at::Tensor whole = at::empty({0}, first.options())
                                     .set_(first.storage(), 0, {numel}, {1})
                                     .to(wanted, /*non_blocking=*/false, /*copy=*/true);
        for (const size_t i : sharing) {
            const at::Tensor& like = tensors[i];
            copies[i] =
                at::empty({0}, like.options().dtype(one_type ? wanted : like.scalar_type()))
                    .set_(whole.storage(), like.storage_offset(), like.sizes(), like.strides());
        }
    }
    return copies;
}

}  // namespace dslaunch::graph
