// The FLOPs of matrix products, attention and convolutions, counted from LibTorch's reports of the
// operators that run: 2 for each multiply-add, as torch.utils.flop_counter counts them. Data path:
// record function -> [here] -> measure.h, module_profiler.h. One thread.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::graph {

// Returns the call's own inputs, which are at the top of the stack; its schema says how many. Below
// them are values that later operators will use.
[[nodiscard]] c10::ArrayRef<const c10::IValue> own_inputs(const at::RecordFunction& call);
// Returns the call's own outputs. When the call ends, they are at the top of the stack.
[[nodiscard]] c10::ArrayRef<const c10::IValue> own_outputs(const at::RecordFunction& call);

// A counter of FLOPs. The top of this file says which operators it counts.
class OperatorFlops {
  public:
    // Called when an operator begins, with its inputs. Returns false if the call is part of an
    // operator that was counted already: an attention, or the same operator under autocast.
    bool enter(const at::RecordFunction& call);
    // Call this with the operator's outputs when an operator ends. Operators must end in the
    // reverse order of enter().
    void leave(const at::RecordFunction& call);
    // Returns the FLOPs since the last call, and starts over.
    [[nodiscard]] int64_t take() { return std::exchange(flops_, 0); }

  private:
    int64_t flops_ = 0;
    int attention_depth_ = 0;
    std::vector<std::string_view> calls_;  // the running operators, the outermost first
    // A convolution's FLOPs are computed in two parts: its inputs no longer exist when it ends, and
    // its output does not exist when it begins.
    int64_t flops_per_output_ = 0;
};

}  // namespace dslaunch::graph
