// A model's forward as one plain graph: inlined, constants propagated, parameters and buffers
// lifted to inputs, the loss of the config appended. Data path: model.h -> [here] -> cut.h, which
// finds the places for cuts. No shared state.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "config/run/run_config.h"
#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

struct LowerOptions {
    bool training = true;
    std::vector<std::string> arguments;  // forward's arguments that the data supply; empty: all
                                         // without a default
    std::vector<std::string> offered;    // tensors that the data have beside those: arguments of
                                         // these names are supplied though they have a default
    config::LossConfig loss;             // kModel: forward's output is the loss
    c10::Device device = c10::kCPU;      // constants of the graph are rewritten to this
    config::LoraConfig lora;             // adapters are added if it is on
    uint64_t adapter_seed = 0;           // with which new adapters begin
    config::LoraBase base = config::LoraBase::kAsIs;  // beside adapters, how weights are held
    at::ScalarType compute_dtype = at::kFloat;        // kBFloat16, kHalf: the graph is for 16-bit
                                                      // parameters under autocast (precision.h)
    bool fp32_parameters = false;                     // true: for fp32 parameters all the same
};

// Sets the module to train or eval mode and lowers its forward; for a loss of preferences its
// method logits(tokens), if it has one. Throws Error{kInput} when an argument is unknown or
// missing, the output is not a loss, or an attribute is written inside control flow; the message
// names the module path and source line.
[[nodiscard]] LoweredGraph lower(Model& model, const LowerOptions& options);

}  // namespace dslaunch::graph
