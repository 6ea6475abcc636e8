// The differences of two stored models, tensor by tensor, for any files, world sizes and stages. It
// streams, but tensors in different orders of memory take three times their size. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/export/tensor_source.h"

namespace dslaunch::storage {

struct DiffOptions {
    std::string glob = "*";  // pattern of names
    double tolerance = 0;    // differences up to it do not count
};

// A tensor, or one of its states, that is not equal in both.
struct TensorDiff {
    enum class Kind : uint8_t { kOnlyInA, kOnlyInB, kShape, kDType, kUpdates, kValues };
    std::string name;
    std::string state = {};  // empty: the weights
    Kind kind = Kind::kValues;
    std::string a = {}, b = {};  // shape, dtype or number of updates in each; of kValues the first
                                 // two
    // The largest difference of kValues. Two NaN are equal; a NaN and a number are infinitely far
    // apart.
    double max_abs = 0;
    int64_t elements_count = 0;
    std::vector<int64_t> first_index = {};
};

struct FieldDiff {
    std::string name, a, b;
};

struct SourceDiff {
    std::vector<TensorDiff> tensors;
    std::vector<FieldDiff> training;  // fields of the training state
    std::vector<FieldDiff> about;     // fields of how each was made; they do not change the model
    int64_t compared_count = 0;       // tensors and states in both
    int64_t numel_read = 0;
    int64_t numel_by_hash = 0;   // equal by their hashes, not read
    bool weights_alone = false;  // one of them has nothing else
    [[nodiscard]] bool equal() const { return tensors.empty() && training.empty(); }
};

// Throws as the sources do; Error{kUsage} when GLOB matches nothing in either.
[[nodiscard]] SourceDiff diff_sources(const TensorSource& a, const TensorSource& b,
                                      const DiffOptions& options);

}  // namespace dslaunch::storage
