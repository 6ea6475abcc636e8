#include "graph/segment/compute_context.h"

#include <torch/csrc/jit/passes/autocast.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include "base/check.h"
#include "graph/segment/autocast_mode.h"

namespace dslaunch::graph {

namespace autocast = at::autocast;

ComputeContext::ComputeContext(bool gradients, at::ScalarType compute_dtype, c10::DeviceType device)
    : was_optimized_(torch::jit::getGraphExecutorOptimize()),
      grad_mode_(gradients),
      had_cache_(autocast::is_autocast_cache_enabled()) {
    torch::jit::setGraphExecutorOptimize(false);
    DSL_CHECK(compute_dtype == at::kFloat || at::isReducedFloatingType(compute_dtype),
              "segments cannot compute in {}", c10::toString(compute_dtype));
    set_autocast(c10::kCPU, compute_dtype);
    if (device != c10::kCPU) set_autocast(device, compute_dtype);
    if (compute_dtype == at::kFloat) return;
    // The cache stores the casts of leaves. The inputs of a segment are leaves, although most of
    // them would not be leaves if the model ran as a whole. With the cache, all uses of an input
    // would share one cast, add up their gradients in 16 bits, and keep the cast after the segment.
    autocast::set_autocast_cache_enabled(false);
    // Switches off a compiler pass, in the whole process. The pass would write a second autocast,
    // with different lists of operators, into the graphs of calls that are not inlined
    // (interfaces).
    static const bool pass_was_on = torch::jit::setAutocastMode(false);
    static_cast<void>(pass_was_on);
}

void ComputeContext::set_autocast(c10::DeviceType device, at::ScalarType compute_dtype) {
    before_.push_back(
        {device, autocast::is_autocast_enabled(device), autocast::get_autocast_dtype(device)});
    autocast::set_autocast_enabled(device, compute_dtype != at::kFloat);
    if (compute_dtype != at::kFloat) autocast::set_autocast_dtype(device, compute_dtype);
}

ComputeContext::~ComputeContext() {
    autocast::set_autocast_cache_enabled(had_cache_);
    for (const Autocast& state : before_) {
        autocast::set_autocast_enabled(state.device, state.is_enabled);
        autocast::set_autocast_dtype(state.device, state.dtype);
    }
    torch::jit::setGraphExecutorOptimize(was_optimized_);
}

BackwardContext::BackwardContext() : no_autocast_(c10::autocast_dispatch_keyset) {}

}  // namespace dslaunch::graph
