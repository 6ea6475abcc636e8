#include "storage/foreign/split_rules.h"

#include <algorithm>
#include <numeric>

#include "storage/foreign/deepspeed_parts.h"

namespace dslaunch::storage {
namespace {

using Kind = PickleValue::Kind;
using Shapes = std::vector<std::vector<int64_t>>;

int64_t sum_of(const std::vector<int64_t>& values) {
    return std::accumulate(values.begin(), values.end(), int64_t{0});
}

}  // namespace

SplitRules::SplitRules(const TorchFile& file, const PickleValue* info, size_t ranks)
    : file_(file), info_(info), ranks_(ranks) {
    if (info_ == nullptr || info_->kind != Kind::kDict) {
        info_ = nullptr;
        return;
    }
    replicated_ = patterns("tp_replicated_parameter_patterns");
    averaged_ = patterns("parameter_to_average_patterns");
    rows_ = patterns("parameter_with_row_parallelism_patterns");
    halves_ = patterns("parameter_with_2_sub_params_cat_dim_0");
    vocabulary_ = patterns("vocabulary_parameter_patterns");
    vocabulary_rows_ = integer_or(info_->find("original_vocab_size"), -1);
    read_compounds();
}

std::vector<NamePattern> SplitRules::patterns(const char* key) const {
    std::vector<NamePattern> found;
    const PickleValue* const list = info_->find(key);
    if (list == nullptr) return found;
    for (const PickleValue* item : list->items) found.emplace_back(file_.path(), item->text);
    return found;
}

bool SplitRules::any(const std::vector<NamePattern>& patterns, const std::string& name) const {
    return std::ranges::any_of(patterns, [&](const NamePattern& one) { return one.matches(name); });
}

std::vector<int64_t> SplitRules::numbers(const PickleValue& list) const {
    std::vector<int64_t> found;
    for (const PickleValue* item : list.items) found.push_back(integer_or(item, 0));
    return found;
}

void SplitRules::read_compounds() {
    const PickleValue* const list = info_->find("parameter_with_sub_params");
    if (list == nullptr) return;
    const PickleValue* const all_widths = info_->find("sub_param_shard_widths");
    for (const PickleValue* item : list->items) {
        Compound one;
        for (const PickleValue* text : need(file_, *item, "patterns").items)
            one.patterns.emplace_back(file_.path(), text->text);
        one.dimension = integer_or(item->find("partition_dim"), -1);
        const auto& sizes = need(file_, *item, "shape").items;
        if (one.dimension < 0 || one.dimension >= std::ssize(sizes))
            refuse(file_.path(), "parameter_with_sub_params: its partition_dim is impossible");
        for (const PickleValue* size : sizes) {
            const bool several = !size->items.empty();
            if (size == sizes[static_cast<size_t>(one.dimension)]) {
                one.sizes = several ? numbers(*size) : std::vector{integer_or(size, 0)};
                one.counts_alike = !several;
            }
            one.shape.push_back(several ? sum_of(numbers(*size)) : integer_or(size, 0));
        }
        for (const NamePattern& pattern : one.patterns) {
            const PickleValue* const widths =
                all_widths == nullptr ? nullptr : all_widths->find(pattern.text());
            if (widths == nullptr) continue;
            one.counts_alike = false;
            for (const PickleValue* of_one : widths->items) one.widths.push_back(numbers(*of_one));
            break;
        }
        compounds_.push_back(std::move(one));
    }
}

Joining SplitRules::of(const std::string& name, const Shapes& shapes) const {
    if (info_ == nullptr)
        refuse(file_.path(),
               "has no universal_checkpoint_info, which says how `{}` and other tensors were split "
               "among the {} tensor ranks: save it with a DeepSpeed, Megatron-DeepSpeed or "
               "transformers that writes it, or gather the weights there",
               name, ranks_);
    Joining joining;
    if (any(replicated_, name) || any(averaged_, name)) {
        joining.kind =
            any(replicated_, name) ? Joining::Kind::kReplicated : Joining::Kind::kAverage;
        joining.shape = shapes.front();
        if (std::ranges::any_of(shapes, [&](const auto& shape) { return shape != shapes[0]; }))
            refuse(file_.path(),
                   "`{}` has different shapes on the tensor ranks, which should each "
                   "have all of it",
                   name);
        return joining;
    }
    const auto found = std::ranges::find_if(
        compounds_, [&](const Compound& one) { return any(one.patterns, name); });
    if (any(halves_, name))
        joining = joined(name, shapes, 0, 2);
    else if (found != compounds_.end())
        joining = compound(*found, name, shapes);
    else
        joining = joined(name, shapes, any(rows_, name) ? 1 : 0, 1);
    if (!any(vocabulary_, name)) return joining;
    if (vocabulary_rows_ < 1 || vocabulary_rows_ > joining.shape.front())
        refuse(file_.path(), "`{}` has {} rows, but the vocabulary should have {}", name,
               joining.shape.front(), vocabulary_rows_);
    joining.shape.front() = vocabulary_rows_;
    return joining;
}

// Concatenates the parts along DIMENSION; of parts that consist of HALVES, first all first ones.
Joining SplitRules::joined(const std::string& name, const Shapes& shapes, size_t dimension,
                           int64_t halves) const {
    Joining joining;
    joining.shape = shapes.front();
    if (joining.shape.size() <= dimension)
        refuse(file_.path(), "`{}` has {} dimensions, so that it was not split along dimension {}",
               name, joining.shape.size(), dimension);
    for (std::vector<int64_t> shape : shapes) {
        joining.widths.push_back(shape.size() > dimension ? shape[dimension] : -1);
        if (shape.size() == joining.shape.size()) shape[dimension] = joining.shape[dimension];
        if (shape != joining.shape || joining.widths.back() % halves != 0)
            refuse(file_.path(), "the parts of `{}` on the tensor ranks do not fit each other",
                   name);
    }
    for (int64_t half = 0; half < halves; ++half)
        for (size_t rank = 0; rank < ranks_; ++rank) {
            const int64_t width = joining.widths[rank] / halves;
            joining.pieces.push_back({rank, half * width, width});
        }
    joining.shape[dimension] = sum_of(joining.widths);
    for (size_t d = 0; d < joining.shape.size(); ++d) {
        if (d < dimension) joining.outer *= joining.shape[d];
        if (d > dimension) joining.inner *= joining.shape[d];
    }
    return joining;
}

Joining SplitRules::compound(const Compound& one, const std::string& name,
                             const Shapes& shapes) const {
    const auto unfit = [&](std::string_view why) {
        refuse(file_.path(), "the parameters in `{}` cannot be told apart: {}", name, why);
    };
    int64_t total = 0;
    for (const auto& shape : shapes) total += numel_of(shape);
    const auto dimension = static_cast<size_t>(one.dimension);
    std::vector<int64_t> sizes = one.sizes, view = one.shape;
    if (one.counts_alike) {
        int64_t whole = 0;
        for (const auto& shape : shapes) {
            if (shape.size() <= dimension) unfit("a part has too few dimensions");
            whole += shape[dimension];
        }
        if (sizes.front() < 1 || whole % sizes.front() != 0) unfit("their sizes are not equal");
        sizes.assign(static_cast<size_t>(sizes.front()), whole / sizes.front());
    }
    std::vector<std::vector<int64_t>> widths = one.widths;
    const auto ranks = static_cast<int64_t>(ranks_);
    for (size_t k = 0; widths.size() < sizes.size(); ++k) {
        if (k >= sizes.size() || sizes[k] % ranks != 0) unfit("the ranks' parts are not equal");
        widths.emplace_back(ranks_, sizes[k] / ranks);
    }
    view[dimension] = sum_of(sizes);
    int64_t known = 1;
    for (const int64_t size : view) known *= size < 0 ? 1 : size;
    if (known < 1 || total % known != 0) unfit("its elements do not fit the shape");
    for (int64_t& size : view)
        if (size < 0) size = total / known;
    if (numel_of(view) != total) unfit("its elements do not fit the shape");
    Joining joining;
    joining.shape = view;
    if (shapes.front().size() == 1) joining.shape = {total};
    if (joining.shape.size() != shapes.front().size()) unfit("its parts have another shape");
    for (size_t d = 0; d < view.size(); ++d) {
        if (d < dimension) joining.outer *= view[d];
        if (d > dimension) joining.inner *= view[d];
    }
    joining.widths.assign(ranks_, 0);
    for (const std::vector<int64_t>& of_ranks : widths) {
        if (of_ranks.size() != ranks_) unfit("it was split among another number of ranks");
        for (size_t rank = 0; rank < ranks_; ++rank) {
            if (of_ranks[rank] < 0) unfit("a width is negative");
            joining.pieces.push_back({rank, joining.widths[rank], of_ranks[rank]});
            joining.widths[rank] += of_ranks[rank];
        }
    }
    for (size_t rank = 0; rank < ranks_; ++rank)
        if (joining.outer * joining.widths[rank] * joining.inner != numel_of(shapes[rank]))
            unfit("a rank's part has another number of elements");
    return joining;
}

}  // namespace dslaunch::storage
