// Describes how a tensor is joined from the parts on the tensor ranks. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace dslaunch::storage {

// The way in which a tensor is joined from the parts of the tensor ranks.
struct Joining {
    // A range of indices in the dimension that was split, in one rank's part.
    struct Piece {
        size_t rank = 0;
        int64_t begin = 0;
        int64_t width = 0;
    };
    // Contiguous elements of one rank's part.
    struct Run {
        size_t rank = 0;
        int64_t begin = 0;
        int64_t numel = 0;
    };
    enum class Kind : uint8_t {
        kPieces,      // pieces one after the other, for each index of the dimensions before
        kRuns,        // runs one after the other
        kReplicated,  // every rank has the whole tensor
        kAverage      // the mean of all ranks' tensors
    };
    Kind kind = Kind::kPieces;
    std::vector<int64_t> shape;  // of the whole tensor
    int64_t outer = 1;           // the product of the sizes before the split dimension
    int64_t inner = 1;           // the product of the sizes after the split dimension
    std::vector<Piece> pieces;
    std::vector<int64_t> widths;  // by rank: the size of its part in the split dimension
    std::vector<Run> runs;
    std::vector<std::pair<Run, Run>> copies;  // runs that must be equal
};

}  // namespace dslaunch::storage
