// Checks the operators of a model's code before any of it runs. Data path: archive -> [here] ->
// model.h. One thread at a time.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/jit/api/compilation_unit.h>

#include <cstdint>
#include <set>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// The largest number of nodes in a model's graph after each call is replaced by the function that
// it calls.
inline constexpr int64_t kModelNodesMax = 2'000'000;
// The deepest nesting of calls: LibTorch inlines them by recursion.
inline constexpr int64_t kCallDepthMax = 300;

// Checks the code of one archive while LibTorch compiles it part by part.
class ModelOperators {
  public:
    // Checks all functions and methods that were added to UNIT since the last call, including their
    // blocks and the graphs in their nodes. Throws Error{kInput}, naming the operator, its function
    // and its line, for an operator that operator_policy.h does not allow.
    void check(const CompilationUnit& unit);

  private:
    std::set<const Function*> checked_;
};

// A guard for constant folding on this thread. LibTorch folds constants while it compiles code,
// before check() can look at the code. While this object lives, LibTorch runs only operators that
// operator_policy.h allows, and leaves all other calls for check() to find. TorchScript's own
// operators bypass the dispatcher and this guard; LibTorch folds them only if they have no side
// effects.
class FoldingGuard {
  public:
    FoldingGuard();

  private:
    c10::impl::IncludeDispatchKeyGuard guard_;
};

// Redirects the output of models' print() to the log, line by line, because stdout is for results.
// Process-wide.
void print_to_log();

// Checks that MODULE's forward and logits stay below both limits, and that they call no recursive
// function. Throws Error{kInput}.
void check_calls(const Module& module);

}  // namespace dslaunch::graph
