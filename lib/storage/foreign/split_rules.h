// The rules by which tensors that DeepSpeed split among tensor ranks become whole again
// (`universal_checkpoint_info`, which Megatron-DeepSpeed and AutoTP write). They mean what they
// mean to ds_to_universal.py. Data path: a rank's model file -> [here] -> deepspeed_split.h. Pure,
// but throws Error{kInput} for rules that are not supported or do not fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "storage/foreign/joining.h"
#include "storage/foreign/name_pattern.h"
#include "storage/foreign/torch_file.h"

namespace dslaunch::storage {

// The rules of a checkpoint.
class SplitRules {
  public:
    // INFO contains the rules and belongs to FILE. It is null if the checkpoint has no rules.
    SplitRules(const TorchFile& file, const PickleValue* info, size_t ranks);

    // Returns how the tensor NAME is joined from the ranks' parts. SHAPES: each part's shape.
    [[nodiscard]] Joining of(const std::string& name,
                             const std::vector<std::vector<int64_t>>& shapes) const;

    // Returns how many rows the tensor NAME has without padding; -1 if it is no vocabulary.
    [[nodiscard]] int64_t vocabulary_rows(const std::string& name) const;

  private:
    // Tensors that each consist of several parameters; each parameter is split by itself.
    struct Compound {
        std::vector<NamePattern> patterns;
        std::vector<int64_t> shape;  // -1 for the size that the rest of the shape determines
        std::vector<int64_t> sizes;  // sizes of the parameters in the split dimension
        bool counts_alike = false;   // `sizes` has only the number of parameters of equal size
        int64_t dimension = 0;
        std::vector<std::vector<int64_t>> widths;  // by parameter and rank; empty if all are equal
    };

    // A tensor for which DeepSpeed gives a map, or says that it cannot be joined.
    struct Described {
        NamePattern pattern;
        const PickleValue* value = nullptr;
    };

    [[nodiscard]] std::vector<NamePattern> patterns(const char* key);
    [[nodiscard]] NamePattern pattern_of(const PickleValue& value);
    [[nodiscard]] std::vector<Described> described(const PickleValue* dict);
    void read_maps();
    [[nodiscard]] Joining by_rules(const std::string& name,
                                   const std::vector<std::vector<int64_t>>& shapes) const;
    void strip_padding(const std::string& name, Joining& joining) const;
    [[nodiscard]] bool any(const std::vector<NamePattern>& patterns, const std::string& name) const;
    void read_compounds();
    [[nodiscard]] int64_t size_of(const PickleValue& value) const;
    [[nodiscard]] std::vector<int64_t> numbers(const PickleValue& list) const;
    [[nodiscard]] Joining joined(const std::string& name,
                                 const std::vector<std::vector<int64_t>>& shapes, size_t dimension,
                                 int64_t halves) const;
    [[nodiscard]] Joining compound(const Compound& one, const std::string& name,
                                   const std::vector<std::vector<int64_t>>& shapes) const;

    const TorchFile& file_;
    const PickleValue* info_;
    size_t ranks_;
    std::vector<NamePattern> replicated_, averaged_, rows_, halves_, vocabulary_;
    std::vector<Compound> compounds_;
    std::vector<Described> unsupported_, maps_;
    size_t patterns_left_, atoms_left_;
    int64_t vocabulary_rows_ = -1;
};

}  // namespace dslaunch::storage
