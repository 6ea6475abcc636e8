// Checks the operators of a model's code before any of it runs. Data path: archive -> [here] ->
// model.h. One thread at a time.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/jit/api/compilation_unit.h>

#include <cstdint>
#include <set>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// The most nodes of a model's graph once each call is replaced by the function that it calls.
inline constexpr int64_t kModelNodesMax = 2'000'000;
// Calls inside calls: LibTorch writes them out by calls of its own.
inline constexpr int64_t kCallDepthMax = 300;

class ModelOperators {
  public:
    // Checks all functions and methods that UNIT has got since the last call, their blocks and the
    // graphs in their nodes. Throws Error{kInput} that names an operator that operator_policy.h
    // does not let in, with its function and line.
    void check(const CompilationUnit& unit);

  private:
    std::set<const Function*> checked_;
};

// LibTorch folds constants while it compiles code, before check() can look at it. As long as this
// lives, LibTorch runs on this thread only operators that operator_policy.h lets in. It does not
// fold other calls, so that check() finds them. TorchScript's own operators are not in the
// dispatcher and not looked at; LibTorch folds only those without an effect.
class FoldingGuard {
  public:
    FoldingGuard();

  private:
    c10::impl::IncludeDispatchKeyGuard guard_;
};

// Lets what models print go to the log, line by line; stdout is for results. Process-wide.
void print_to_log();

// Checks that MODULE's forward and logits stay below both limits, and call nothing that calls
// itself. Throws Error{kInput}.
void check_calls(const Module& module);

}  // namespace dslaunch::graph
