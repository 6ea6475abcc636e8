// Compares two stored models, tensor by tensor, whatever their files, world sizes and stages are.
// Tensors are read in parts. But if the two models store a tensor in different orders, comparing it
// takes three times its size in memory. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/export/tensor_source.h"

namespace dslaunch::storage {

// The tensors to compare, and the largest difference that is accepted.
struct DiffOptions {
    std::string glob = "*";  // pattern of names
    double tolerance = 0;    // differences up to this do not count
};

// A tensor, or one of its states, that differs between the two sources.
struct TensorDiff {
    // The first of these aspects in which A and B differ.
    enum class Kind : uint8_t { kOnlyInA, kOnlyInB, kShape, kDType, kUpdates, kValues };
    std::string name;
    std::string state = {};  // empty for the weights
    Kind kind = Kind::kValues;
    std::string a = {}, b = {};  // shape, dtype or number of updates in each; for kValues the
                                 // first two values that differ
    // The largest difference of kValues. Two NaN are equal; a NaN and a number are infinitely far
    // apart.
    double max_abs = 0;
    int64_t elements_count = 0;
    std::vector<int64_t> first_index = {};
};

// A field that differs between A and B, with both values.
struct FieldDiff {
    std::string name, a, b;
};

// All differences of two sources A and B.
struct SourceDiff {
    std::vector<TensorDiff> tensors;
    std::vector<FieldDiff> training;  // fields of the training state
    std::vector<FieldDiff> about;     // facts that do not change the model
    int64_t compared_count = 0;       // tensors and states that A and B have
    int64_t numel_read = 0;
    int64_t numel_by_hash = 0;      // elements not read: their hashes are equal
    bool is_weights_alone = false;  // A or B has only weights
    // Returns true if the models are equal, and their training states too if both have one.
    [[nodiscard]] bool is_equal() const { return tensors.empty() && training.empty(); }
};

// Returns the differences. Throws what the sources throw, and Error{kUsage} if GLOB matches no
// tensor in either source.
[[nodiscard]] SourceDiff diff_sources(const TensorSource& a, const TensorSource& b,
                                      const DiffOptions& options);

}  // namespace dslaunch::storage
