// Turns a model's forward into one plain graph: calls are inlined, constants propagated, parameters
// and buffers lifted to inputs, and the config's loss appended. Data path: model.h -> [here] ->
// cut.h, which finds where the graph can be cut. No shared state.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "config/run/compression_config.h"
#include "config/run/run_config.h"
#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// Options of lower().
struct LowerOptions {
    bool trains = true;
    bool logits = false;                 // true: the output is the logits, without a loss
    std::vector<std::string> arguments;  // the arguments that the data supply; empty: all arguments
                                         // without a default
    std::vector<std::string> offered;    // further tensors in the data, which are also used for
                                         // arguments with a default
    config::LossConfig loss;             // kModel: forward's output is the loss
    c10::Device device = c10::kCPU;      // the device of the graph's constants
    config::LoraConfig lora;             // adapters are added if it is on
    config::CompressionConfig compression;  // layers are changed if changes_graph()
    uint64_t adapter_seed = 0;              // for the initial values of new adapters and scores
    config::LoraBase base = config::LoraBase::kAsIs;  // the form of the base's weights
    at::ScalarType compute_dtype = at::kFloat;        // kBFloat16, kHalf: the graph is for 16-bit
                                                      // parameters under autocast (precision.h)
    bool keeps_fp32_parameters = false;               // true: parameters stay fp32 under autocast
                                                      // too
};

// Sets the module to train or eval mode and lowers its forward. If the loss is a preference loss or
// OPTIONS.logits is true, and the module has a method logits(tokens), lowers that method instead.
// Throws Error{kInput} if an argument is unknown or missing, if the output is not a loss, or if an
// attribute is written inside control flow; the message names the module path and source line.
[[nodiscard]] LoweredGraph lower(Model& model, const LowerOptions& options);

}  // namespace dslaunch::graph
