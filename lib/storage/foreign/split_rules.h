// The rules by which tensors that DeepSpeed split among tensor ranks become whole again
// (`universal_checkpoint_info`, which Megatron-DeepSpeed and AutoTP write). They mean what they
// mean to ds_to_universal.py. Data path: a rank's model file -> [here] -> deepspeed_split.h. Pure,
// but throws Error{kInput} for rules that are not supported or do not fit.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "storage/foreign/name_pattern.h"
#include "storage/foreign/torch_file.h"

namespace dslaunch::storage {

// Says how a tensor is made of the parts that the tensor ranks have.
struct Joining {
    // A piece of one rank's part in the split dimension.
    struct Piece {
        size_t rank = 0;
        int64_t begin = 0;
        int64_t width = 0;
    };
    enum class Kind : uint8_t {
        kPieces,      // pieces one after the other, for each index of the dimensions before
        kReplicated,  // every rank has the whole tensor
        kAverage      // the mean of all ranks' tensors
    };
    Kind kind = Kind::kPieces;
    std::vector<int64_t> shape;  // of the whole tensor
    int64_t outer = 1;           // the product of the sizes before the split dimension
    int64_t inner = 1;           // and of those after it
    std::vector<Piece> pieces;
    std::vector<int64_t> widths;  // by rank: the size of its part in the split dimension
};

// The rules of a checkpoint.
class SplitRules {
  public:
    // INFO is a value of FILE; null if the checkpoint has no rules.
    SplitRules(const TorchFile& file, const PickleValue* info, size_t ranks);

    // Returns how the tensor NAME is made of parts with SHAPES, one for each rank.
    [[nodiscard]] Joining of(const std::string& name,
                             const std::vector<std::vector<int64_t>>& shapes) const;

  private:
    // Parameters that consist of several, each split by itself.
    struct Compound {
        std::vector<NamePattern> patterns;
        std::vector<int64_t> shape;  // -1: what is left of the elements
        std::vector<int64_t> sizes;  // of the parameters in the split dimension
        bool counts_alike = false;   // `sizes` has one number: how many parameters of one size
        int64_t dimension = 0;
        std::vector<std::vector<int64_t>> widths;  // by parameter, by rank; empty: equal parts
    };

    [[nodiscard]] std::vector<NamePattern> patterns(const char* key) const;
    [[nodiscard]] bool any(const std::vector<NamePattern>& patterns, const std::string& name) const;
    void read_compounds();
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
    int64_t vocabulary_rows_ = -1;
};

}  // namespace dslaunch::storage
