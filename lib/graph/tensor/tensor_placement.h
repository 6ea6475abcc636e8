// Three things about the ranks of a tensor group: the placement of a tensor on them, the decisions
// from which placements follow, and the obstacle that ends a flow of placements. Used by the flow
// (placement_flow.h), the rules of operators, and the search. No state.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/nodes/names.h"
#include "plan/tensor/tensor_plan.h"

namespace dslaunch::graph {

// The parts of a graph in which ranks share the positions of samples. A position is the index of a
// token in its sample.
enum class PositionSplit {
    kNone,
    kBetweenLayers,  // weights are split, and positions between split layers
    kEverywhere,     // weights are whole; attention exchanges positions for heads
};

// The part of a tensor that each rank has, and the meaning of its gradient there.
struct TensorPlacement {
    // The value of `parameter` for a tensor that is split by positions, not by a parameter.
    static constexpr int kPositions = -2;

    // Gradients are placed like their values, except for kCopied.
    enum class Kind {
        kWhole,   // value and gradient are the same on every rank
        kCopied,  // the value is the same on every rank; its gradient is a summand
        kShard,
    };
    Kind kind = Kind::kWhole;
    plan::TensorShard shard;  // if kind is kShard
    int parameter = -1;       // the parameter whose rule split the tensor, for messages and block
                              // sizes

    // Returns the placement of a tensor that every rank computes.
    [[nodiscard]] static TensorPlacement copied() {
        TensorPlacement made;
        made.kind = Kind::kCopied;
        return made;
    }
    // Returns the placement of a tensor that is split by the rule of PARAMETER.
    [[nodiscard]] static TensorPlacement split(plan::TensorShard shard, int parameter) {
        return {Kind::kShard, std::move(shard), parameter};
    }
    // Return true if the placement is of the kind in the function's name. is_positions() returns
    // true for a split by positions.
    [[nodiscard]] bool is_shard() const { return kind == Kind::kShard; }
    [[nodiscard]] bool is_whole() const { return kind == Kind::kWhole; }
    [[nodiscard]] bool is_copied() const { return kind == Kind::kCopied; }
    [[nodiscard]] bool is_positions() const { return is_shard() && parameter == kPositions; }
    // Returns true if this placement equals OTHER; the parameters that caused the splits may
    // differ.
    [[nodiscard]] bool is_placed_like(const TensorPlacement& other) const {
        return kind == other.kind && (kind != Kind::kShard || shard == other.shard);
    }
};

// The decisions about model parameters. kWhole means that the parameter is not decided yet or, if
// the parameter is in `locked`, that it stays whole. kCopied means that every rank computes the
// linear layer on its own copy of the input.
struct TensorDecisions {
    std::map<int, TensorPlacement> parameters;
    std::set<int> locked;
    std::set<int> gathered;  // layers whose outputs may be gathered if nothing else helps
};

// The splits that a node needs: pairs of a parameter's index in the model and its split.
using TensorDemands = std::vector<std::pair<int, TensorPlacement>>;

// The reason why a flow cannot go on at a node.
struct TensorObstacle {
    Node* node = nullptr;
    std::string reason;
    int parameter = -1;           // the parameter whose split is in the way
    bool is_indivisible = false;  // true: another number of ranks might be possible
    TensorDemands demands;        // splits that might help; empty if none are known
};

}  // namespace dslaunch::graph
