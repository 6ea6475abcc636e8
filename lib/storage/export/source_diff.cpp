#include "storage/export/source_diff.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "base/kinds/shape_text.h"
#include "base/text.h"
#include "storage/export/floats.h"
#include "storage/export/row_major.h"

namespace dslaunch::storage {
namespace {

using Kind = TensorDiff::Kind;

// Returns all names of TENSOR, because the source with which it is compared may use any of them.
std::vector<std::string> names_of(const CheckpointTensor& tensor) {
    if (tensor.kind == TensorKind::kRankBuffer)
        return {fmt::format("{} (rank {})", tensor.name, tensor.rank)};
    std::vector<std::string> names = {tensor.name};
    names.insert(names.end(), tensor.aliases.begin(), tensor.aliases.end());
    return names;
}

double distance(double a, double b) {
    if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::infinity();
    return std::fabs(a - b);
}

// Turns real numbers into complex ones.
void add_imaginary(std::vector<double>& values) {
    std::vector<double> pairs(2 * values.size(), 0.0);
    for (size_t i = 0; i < values.size(); ++i) pairs[2 * i] = values[i];
    values = std::move(pairs);
}

// A tensor of a source, or a view of the tensor if `view` is not null.
struct Named {
    int index = 0;
    const CheckpointView* view = nullptr;
};

// Compares elements of two tensors, part by part, and summarizes the differences.
class ValueCompare {
  public:
    ValueCompare(DType a, DType b, double tolerance) : a_(a), b_(b), tolerance_(tolerance) {}

    // FIRST is the index of the first element of A and B in the tensor.
    void add(std::span<const std::byte> a, std::span<const std::byte> b, int64_t first) {
        if (a_ == b_ && std::ranges::equal(a, b)) return;
        to_doubles(a, a_, a_values_);
        to_doubles(b, b_, b_values_);
        const bool complex = a_ == DType::kC64 || b_ == DType::kC64;
        if (complex && a_ != DType::kC64) add_imaginary(a_values_);
        if (complex && b_ != DType::kC64) add_imaginary(b_values_);
        const size_t parts = complex ? 2 : 1;
        for (size_t i = 0; i < a_values_.size(); i += parts) {
            // The part of the element, real or imaginary, that differs most.
            size_t at = i;
            if (complex &&
                distance(a_values_[i + 1], b_values_[i + 1]) > distance(a_values_[i], b_values_[i]))
                ++at;
            const double apart = distance(a_values_[at], b_values_[at]);
            if (!(apart > tolerance_)) continue;
            if (count_++ == 0) {
                first_ = first + static_cast<int64_t>(i / parts);
                a_first_ = a_values_[at];
                b_first_ = b_values_[at];
            }
            max_abs_ = std::max(max_abs_, apart);
        }
    }
    [[nodiscard]] bool differs() const { return count_ > 0; }
    // Returns the index of the first difference, counted as in add().
    [[nodiscard]] int64_t first() const { return first_; }
    void tell(TensorDiff& diff) const {
        diff.max_abs = max_abs_;
        diff.elements_count = count_;
        diff.a = fmt::format("{}", a_first_);
        diff.b = fmt::format("{}", b_first_);
    }

  private:
    DType a_, b_;
    double tolerance_;
    std::vector<double> a_values_, b_values_;
    int64_t count_ = 0;
    int64_t first_ = -1;
    double a_first_ = 0, b_first_ = 0, max_abs_ = 0;
};

// Returns all elements of a tensor in row-major order.
std::vector<std::byte> rows_of(const TensorSource& source, int index, int state) {
    const CheckpointTensor& tensor = source.tensors()[index];
    std::vector<std::byte> memory;
    const int64_t numel = tensor.numel_of(state);
    memory.reserve(static_cast<size_t>(numel * dtype_bytes(dtype_of(tensor, state))));
    source.for_each(index, state, {0, numel}, [&](const Range&, std::span<const std::byte> part) {
        memory.insert(memory.end(), part.begin(), part.end());
    });
    if (is_row_major(tensor) || !tensor.is_like_tensor(state)) return memory;
    std::vector<std::byte> rows;
    rows.reserve(memory.size());
    for_each_row_major(tensor, memory, dtype_bytes(dtype_of(tensor, state)),
                       [&](std::span<const std::byte> part) {
                           rows.insert(rows.end(), part.begin(), part.end());
                       });
    return rows;
}

// Returns all elements of NAMED in SOURCE, in row-major order.
std::vector<std::byte> rows_of(const TensorSource& source, const Named& named) {
    if (named.view == nullptr) return rows_of(source, named.index, kWeights);
    const CheckpointTensor& tensor = source.tensors()[named.index];
    std::vector<std::byte> memory, rows;
    source.for_each(named.index, kWeights, {0, tensor.numel()},
                    [&](const Range&, std::span<const std::byte> part) {
                        memory.insert(memory.end(), part.begin(), part.end());
                    });
    for_each_row_major(*named.view, memory, dtype_bytes(tensor.dtype),
                       [&](std::span<const std::byte> part) {
                           rows.insert(rows.end(), part.begin(), part.end());
                       });
    return rows;
}

std::map<std::string, Named> views_of(const TensorSource& source) {
    std::map<std::string, Named> views;
    for (size_t i = 0; i < source.tensors().size(); ++i)
        for (const CheckpointView& view : source.tensors()[i].views)
            views.emplace(view.name, Named{static_cast<int>(i), &view});
    return views;
}

class Differ {
  public:
    Differ(const TensorSource& a, const TensorSource& b, const DiffOptions& options)
        : a_(a), b_(b), options_(options) {}

    SourceDiff run() {
        const std::map<std::string, Named> views_a = views_of(a_), views_b = views_of(b_);
        std::map<std::string, int> in_b;
        for (size_t i = 0; i < b_.tensors().size(); ++i)
            for (const std::string& name : names_of(b_.tensors()[i]))
                in_b.emplace(name, static_cast<int>(i));
        std::set<int> found;
        for (size_t i = 0; i < a_.tensors().size(); ++i)
            find_in_b(static_cast<int>(i), in_b, views_b, found);
        for (int i = 0; i < std::ssize(b_.tensors()); ++i) {
            const CheckpointTensor& tensor = b_.tensors()[i];
            if (found.contains(i) || !wanted(tensor)) continue;
            const auto view = views_a.find(tensor.name);
            if (view == views_a.end()) {
                only(tensor, Kind::kOnlyInB);
            } else {
                compare_rows(tensor.name, view->second, {i, nullptr});
            }
        }
        if (!has_any_)
            fail(ExitCode::kUsage, "--tensor {}: matches no tensor of {} or {}",
                 printable(options_.glob), a_.path(), b_.path());
        compare_training();
        return std::move(diff_);
    }

  private:
    bool wanted(const CheckpointTensor& tensor) {
        const bool yes = std::ranges::any_of(names_of(tensor), [&](const std::string& name) {
            return ::fnmatch(options_.glob.c_str(), name.c_str(), 0) == 0;
        });
        has_any_ = has_any_ || yes;
        return yes;
    }

    void only(const CheckpointTensor& tensor, Kind kind) {
        diff_.tensors.push_back({.name = names_of(tensor).front(), .kind = kind});
    }

    void find_in_b(int index, const std::map<std::string, int>& in_b,
                   const std::map<std::string, Named>& views_b, std::set<int>& found) {
        const CheckpointTensor& tensor = a_.tensors()[index];
        std::set<int> same;
        for (const std::string& name : names_of(tensor))
            if (const auto it = in_b.find(name); it != in_b.end()) same.insert(it->second);
        found.insert(same.begin(), same.end());
        if (!wanted(tensor)) return;
        if (same.empty()) {
            const auto view = views_b.find(tensor.name);
            if (view == views_b.end()) return only(tensor, Kind::kOnlyInA);
            compare_rows(tensor.name, {index, nullptr}, view->second);
        }
        for (const int other : same) compare(index, other);
    }

    // Compares a tensor of one source with a view that has the same name in the other.
    void compare_rows(const std::string& name, const Named& in_a, const Named& in_b) {
        const auto shape_of = [](const TensorSource& source, const Named& named) {
            return named.view == nullptr ? source.tensors()[named.index].shape : named.view->shape;
        };
        const std::vector<int64_t> shape = shape_of(a_, in_a), of_b = shape_of(b_, in_b);
        ++diff_.compared_count;
        TensorDiff diff{.name = name};
        if (shape != of_b) {
            diff.kind = Kind::kShape;
            diff.a = shape_text(shape);
            diff.b = shape_text(of_b);
            diff_.tensors.push_back(std::move(diff));
            return;
        }
        ValueCompare values(a_.tensors()[in_a.index].dtype, b_.tensors()[in_b.index].dtype,
                            options_.tolerance);
        values.add(rows_of(a_, in_a), rows_of(b_, in_b), 0);
        if (!values.differs()) return;
        values.tell(diff);
        CheckpointTensor order;
        order.shape = shape;
        diff.first_index = index_of(order, values.first());
        diff_.tensors.push_back(std::move(diff));
    }

    void compare(int index_a, int index_b) {
        const CheckpointTensor& a = a_.tensors()[index_a];
        const CheckpointTensor& b = b_.tensors()[index_b];
        const auto differs = [&](Kind kind, std::string of_a, std::string of_b) {
            TensorDiff diff{.name = names_of(a).front(), .kind = kind};
            diff.a = std::move(of_a);
            diff.b = std::move(of_b);
            diff_.tensors.push_back(std::move(diff));
        };
        if (a.shape != b.shape) {
            ++diff_.compared_count;
            return differs(Kind::kShape, shape_text(a.shape), shape_text(b.shape));
        }
        if (a.dtype != b.dtype)
            differs(Kind::kDType, std::string(dtype_name(a.dtype)),
                    std::string(dtype_name(b.dtype)));
        compare_values(index_a, kWeights, index_b, kWeights);
        if (a_.checkpoint() == nullptr || b_.checkpoint() == nullptr) return;
        if (a.updates != b.updates)
            differs(Kind::kUpdates, std::to_string(a.updates), std::to_string(b.updates));
        compare_states(index_a, index_b);
    }

    void compare_states(int index_a, int index_b) {
        const CheckpointTensor& a = a_.tensors()[index_a];
        const CheckpointTensor& b = b_.tensors()[index_b];
        const std::vector<std::string> none;
        const auto& states_a = has_states(a) ? a_.checkpoint()->states : none;
        const auto& states_b = has_states(b) ? b_.checkpoint()->states : none;
        for (size_t i = 0; i < states_a.size(); ++i) {
            const auto it = std::ranges::find(states_b, states_a[i]);
            if (it == states_b.end()) {
                diff_.tensors.push_back({names_of(a).front(), states_a[i], Kind::kOnlyInA});
            } else {
                compare_values(index_a, static_cast<int>(i), index_b,
                               static_cast<int>(it - states_b.begin()));
            }
        }
        for (const std::string& state : states_b)
            if (std::ranges::find(states_a, state) == states_a.end())
                diff_.tensors.push_back({names_of(b).front(), state, Kind::kOnlyInB});
    }

    void compare_values(int index_a, int state_a, int index_b, int state_b) {
        const CheckpointTensor& a = a_.tensors()[index_a];
        const CheckpointTensor& b = b_.tensors()[index_b];
        ++diff_.compared_count;
        if (a.numel_of(state_a) != b.numel_of(state_b)) {
            TensorDiff diff{.name = names_of(a).front(), .kind = Kind::kShape};
            diff.state = a_.checkpoint()->states[state_a];
            diff.a = fmt::format("{} elements", a.numel_of(state_a));
            diff.b = fmt::format("{} elements", b.numel_of(state_b));
            diff_.tensors.push_back(std::move(diff));
            return;
        }
        ValueCompare values(dtype_of(a, state_a), dtype_of(b, state_b), options_.tolerance);
        const bool one_order = (is_row_major(a) && is_row_major(b)) || a.strides == b.strides ||
                               !a.is_like_tensor(state_a);
        if (one_order) {
            compare_in_memory({index_a, state_a, index_b, state_b}, values);
        } else {
            const std::vector<std::byte> rows_a = rows_of(a_, index_a, state_a);
            const std::vector<std::byte> rows_b = rows_of(b_, index_b, state_b);
            values.add(rows_a, rows_b, 0);
            diff_.numel_read += a.numel_of(state_a);
        }
        if (!values.differs()) return;
        TensorDiff diff{.name = names_of(a).front()};
        if (state_a != kWeights) diff.state = a_.checkpoint()->states[state_a];
        values.tell(diff);
        CheckpointTensor order = a;
        if (!one_order) order.strides.clear();
        if (!a.is_like_tensor(state_a)) order.shape = {a.numel_of(state_a)}, order.strides.clear();
        diff.first_index = index_of(order, values.first());
        diff_.tensors.push_back(std::move(diff));
    }

    struct Pair {
        int index_a, state_a, index_b, state_b;
    };
    void compare_in_memory(const Pair& pair, ValueCompare& values) {
        const CheckpointTensor& tensor = a_.tensors()[pair.index_a];
        std::vector<HashedRange> ranges = a_.hashes(pair.index_a, pair.state_a);
        const std::vector<HashedRange> known = b_.hashes(pair.index_b, pair.state_b);
        const bool same_dtype =
            dtype_of(tensor, pair.state_a) == dtype_of(b_.tensors()[pair.index_b], pair.state_b);
        if (ranges.empty()) ranges.push_back({{0, tensor.numel_of(pair.state_a)}, {}});
        for (const HashedRange& range : ranges) {
            if (same_dtype && std::ranges::find(known, range) != known.end()) {
                diff_.numel_by_hash += range.elements.numel;
                continue;
            }
            diff_.numel_read += range.elements.numel;
            compare_range(pair, range.elements, values);
        }
    }

    void compare_range(const Pair& pair, const Range& elements, ValueCompare& values) {
        const CheckpointTensor& tensor = a_.tensors()[pair.index_a];
        const int64_t bytes_a = dtype_bytes(dtype_of(tensor, pair.state_a));
        a_.for_each(pair.index_a, pair.state_a, elements,
                    [&](const Range& part, std::span<const std::byte> in_a) {
                        b_.for_each(
                            pair.index_b, pair.state_b, part,
                            [&](const Range& piece, std::span<const std::byte> in_b) {
                                const auto skipped = (piece.begin - part.begin) * bytes_a;
                                values.add(in_a.subspan(static_cast<size_t>(skipped),
                                                        static_cast<size_t>(piece.numel * bytes_a)),
                                           in_b, piece.begin);
                            });
                    });
    }

    template <typename Value>
    static void field(std::vector<FieldDiff>& into, const char* name, const Value& a,
                      const Value& b) {
        if (!(a == b)) into.push_back({name, fmt::format("{}", a), fmt::format("{}", b)});
    }

    void compare_training() {
        const Checkpoint* a = a_.checkpoint();
        const Checkpoint* b = b_.checkpoint();
        diff_.is_weights_alone = a == nullptr || b == nullptr;
        if (diff_.is_weights_alone) return;
        const TrainingState &x = a->training, &y = b->training;
        auto& training = diff_.training;
        field(training, "step", x.step, y.step);
        field(training, "updates", x.updates, y.updates);
        field(training, "samples_seen", x.samples_seen, y.samples_seen);
        field(training, "seed", x.seed, y.seed);
        if (distance(x.loss, y.loss) > options_.tolerance)
            training.push_back({"loss", fmt::format("{}", x.loss), fmt::format("{}", y.loss)});
        field(training, "loss_scale", x.loss_scale, y.loss_scale);
        field(training, "scale_steps", x.scale_steps, y.scale_steps);
        field(training, "scale_good_steps", x.scale_good_steps, y.scale_good_steps);
        field(training, "scale_hysteresis_left", x.scale_hysteresis_left, y.scale_hysteresis_left);
        field(training, "optimizer", a->optimizer, b->optimizer);
        auto& about = diff_.about;
        field(about, "world_size", a->world_size, b->world_size);
        field(about, "zero_stage", a->zero_stage, b->zero_stage);
        field(about, "version", a->version, b->version);
        if (a->config_json != b->config_json) about.push_back({"config", "its own", "another"});
    }

    const TensorSource& a_;
    const TensorSource& b_;
    const DiffOptions& options_;
    SourceDiff diff_;
    bool has_any_ = false;
};

}  // namespace

SourceDiff diff_sources(const TensorSource& a, const TensorSource& b, const DiffOptions& options) {
    return Differ(a, b, options).run();
}

}  // namespace dslaunch::storage
