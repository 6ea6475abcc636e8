#include "storage/foreign/split_rules.h"

#include <algorithm>
#include <numeric>

#include "storage/foreign/affine_map.h"
#include "storage/foreign/deepspeed_parts.h"

namespace dslaunch::storage {
namespace {

using Kind = PickleValue::Kind;
using Shapes = std::vector<std::vector<int64_t>>;

// Limits for all rules together, since the files are not trusted.
constexpr size_t kPatternsMax = 200'000;
constexpr size_t kRuleAtomsMax = 2'000'000;
constexpr size_t kParametersMax = 65'536;  // in one tensor
constexpr int64_t kSizeMax = int64_t{1} << 44;
constexpr int64_t kMapVersion = 1;

int64_t sum_of(const std::vector<int64_t>& values) {
    return std::accumulate(values.begin(), values.end(), int64_t{0});
}

}  // namespace

SplitRules::SplitRules(const TorchFile& file, const PickleValue* info, size_t ranks)
    : file_(file),
      info_(info),
      ranks_(ranks),
      patterns_left_(kPatternsMax),
      atoms_left_(kRuleAtomsMax) {
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
    unsupported_ = described(info_->find("autotp_unsupported_parameter_patterns"));
    read_maps();
    read_compounds();
}

NamePattern SplitRules::pattern_of(const PickleValue& value) {
    NamePattern pattern(file_.path(), value.text);
    if (patterns_left_-- == 0 || pattern.atoms() > atoms_left_)
        refuse(file_.path(), "has too many or too long patterns of parameter names");
    atoms_left_ -= pattern.atoms();
    return pattern;
}

std::vector<SplitRules::Described> SplitRules::described(const PickleValue* dict) {
    std::vector<Described> found;
    if (dict == nullptr || dict->kind != Kind::kDict) return found;
    for (size_t i = 0; i + 1 < dict->items.size(); i += 2)
        found.push_back({pattern_of(*dict->items[i]), dict->items[i + 1]});
    return found;
}

void SplitRules::read_maps() {
    const PickleValue* const all = info_->find("affine_map");
    if (all == nullptr || all->kind != Kind::kDict) return;
    const int64_t version = integer_or(all->find("version"), kMapVersion);
    if (version > kMapVersion)
        refuse(file_.path(),
               "its affine_map has version {}, but only versions up to {} are supported", version,
               kMapVersion);
    maps_ = described(all->find("params"));
}

std::vector<NamePattern> SplitRules::patterns(const char* key) {
    std::vector<NamePattern> found;
    const PickleValue* const list = info_->find(key);
    if (list == nullptr) return found;
    for (const PickleValue* item : list->items) found.push_back(pattern_of(*item));
    return found;
}

bool SplitRules::any(const std::vector<NamePattern>& patterns, const std::string& name) const {
    return std::ranges::any_of(patterns, [&](const NamePattern& one) { return one.matches(name); });
}

int64_t SplitRules::size_of(const PickleValue& value) const {
    const int64_t size = integer_or(&value, 0);
    if (size < -1 || size > kSizeMax)
        refuse(file_.path(), "parameter_with_sub_params: the size {} is impossible", size);
    return size;
}

std::vector<int64_t> SplitRules::numbers(const PickleValue& list) const {
    if (list.items.size() > kParametersMax)
        refuse(file_.path(), "a tensor consists of {} parameters, too many", list.items.size());
    std::vector<int64_t> found;
    for (const PickleValue* item : list.items) found.push_back(size_of(*item));
    return found;
}

void SplitRules::read_compounds() {
    const PickleValue* const list = info_->find("parameter_with_sub_params");
    if (list == nullptr) return;
    const PickleValue* const all_widths = info_->find("sub_param_shard_widths");
    for (const PickleValue* item : list->items) {
        Compound one;
        for (const PickleValue* text : need(file_, *item, "patterns").items)
            one.patterns.push_back(pattern_of(*text));
        one.dimension = integer_or(item->find("partition_dim"), -1);
        const auto& sizes = need(file_, *item, "shape").items;
        if (one.dimension < 0 || one.dimension >= std::ssize(sizes))
            refuse(file_.path(), "parameter_with_sub_params: its partition_dim is impossible");
        for (const PickleValue* size : sizes) {
            const bool several = !size->items.empty();
            if (size == sizes[static_cast<size_t>(one.dimension)]) {
                one.sizes = several ? numbers(*size) : std::vector{size_of(*size)};
                one.counts_alike = !several;
            }
            one.shape.push_back(several ? sum_of(numbers(*size)) : size_of(*size));
        }
        for (const NamePattern& pattern : one.patterns) {
            const PickleValue* const widths =
                all_widths == nullptr ? nullptr : all_widths->find(pattern.text());
            if (widths == nullptr) continue;
            one.counts_alike = false;
            if (widths->items.size() > kParametersMax)
                refuse(file_.path(), "a tensor consists of too many parameters");
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
               "among the {} tensor ranks: save the checkpoint with a version of DeepSpeed, "
               "Megatron-DeepSpeed or transformers that writes this key, or gather the weights in "
               "the program that trained the model",
               name, ranks_);
    for (const Described& one : unsupported_)
        if (one.pattern.matches(name))
            refuse(
                file_.path(),
                "DeepSpeed could not describe how `{}` was split among the tensor ranks, so that "
                "it cannot be joined: {}",
                name, one.value->kind == Kind::kText ? one.value->text : "it says no reason");
    Joining joining;
    const auto by_map = [&](const Described& one) { return one.pattern.matches(name); };
    const auto map = std::ranges::find_if(maps_, by_map);
    if (map != maps_.end())
        joining = joining_of_map(file_, *map->value, name, shapes);
    else
        joining = by_rules(name, shapes);
    strip_padding(name, joining);
    return joining;
}

int64_t SplitRules::vocabulary_rows(const std::string& name) const {
    if (info_ == nullptr || !any(vocabulary_, name)) return -1;
    if (vocabulary_rows_ < 1)
        refuse(file_.path(), "has `{}` as a vocabulary, but no original_vocab_size", name);
    return vocabulary_rows_;
}

// Removes the rows of padding that were added to a vocabulary to make it divisible among ranks.
void SplitRules::strip_padding(const std::string& name, Joining& joining) const {
    const int64_t rows = vocabulary_rows(name);
    if (rows < 0) return;
    if (joining.shape.empty() || rows > joining.shape.front())
        refuse(file_.path(), "`{}` has {} rows, but the vocabulary should have {}", name,
               joining.shape.empty() ? 0 : joining.shape.front(), rows);
    joining.shape.front() = rows;
}

Joining SplitRules::by_rules(const std::string& name, const Shapes& shapes) const {
    Joining joining;
    if (any(replicated_, name) || any(averaged_, name)) {
        joining.kind =
            any(replicated_, name) ? Joining::Kind::kReplicated : Joining::Kind::kAverage;
        joining.shape = shapes.front();
        if (std::ranges::any_of(shapes, [&](const auto& shape) { return shape != shapes[0]; }))
            refuse(file_.path(),
                   "`{}` has different shapes on the tensor ranks, but each rank should have the "
                   "whole tensor",
                   name);
        return joining;
    }
    const auto found = std::ranges::find_if(
        compounds_, [&](const Compound& one) { return any(one.patterns, name); });
    if (any(halves_, name)) return joined(name, shapes, 0, 2);
    if (found != compounds_.end()) return compound(*found, name, shapes);
    return joined(name, shapes, any(rows_, name) ? 1 : 0, 1);
}

// Concatenates the parts along DIMENSION. Divides each part into HALVES equal pieces; the first
// pieces of all parts come first.
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
        if (sizes.front() > static_cast<int64_t>(kParametersMax)) unfit("there are too many");
        sizes.assign(static_cast<size_t>(sizes.front()), whole / sizes.front());
    }
    std::vector<std::vector<int64_t>> widths = one.widths;
    if (!widths.empty() && widths.size() != sizes.size())
        unfit("the widths of the ranks' parts are given for more or fewer parameters");
    for (size_t k = 0; k < widths.size(); ++k)
        if (sum_of(widths[k]) != sizes[k])
            unfit("the widths of the ranks' parts do not add up to the size of a parameter");
    const auto ranks = static_cast<int64_t>(ranks_);
    for (size_t k = 0; widths.size() < sizes.size(); ++k) {
        if (k >= sizes.size() || sizes[k] % ranks != 0) unfit("the ranks' parts are not equal");
        widths.emplace_back(ranks_, sizes[k] / ranks);
    }
    view[dimension] = sum_of(sizes);
    int64_t known = 1;
    for (const int64_t size : view) {
        if (size > 0 && known > kSizeMax / size) unfit("the shape is too large");
        known *= size < 0 ? 1 : size;
    }
    if (known < 1 || total % known != 0) unfit("its elements do not fit the shape");
    if (std::ranges::count_if(view, [](int64_t size) { return size < 0; }) > 1)
        unfit("more than one size in the shape is negative (unknown)");
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
