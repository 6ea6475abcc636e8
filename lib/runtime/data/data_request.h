// The data that a model requests: forward's arguments as the lowered graph has them, and the
// config's settings of data and loss. A value type.
#pragma once

#include <ATen/core/jit_type_base.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run/run_config.h"

namespace dslaunch::runtime {

struct DataRequest {
    config::DataConfig data;
    config::LossConfig loss;  // the last argument is its target, unless the loss is kModel
    std::vector<std::string> arguments;        // forward's, in order
    std::vector<c10::TypePtr> argument_types;  // one per argument

    [[nodiscard]] bool has_target() const {
        return loss.kind != config::LossKind::kModel && !arguments.empty();
    }
};

// A limit of integers to [0, count), with one more value that may be allowed.
struct IndexLimit {
    int64_t count = 0;
    std::optional<int64_t> also = {};  // cross entropy's -100: such a target is not counted
    std::string what = {};  // "class", "row of wte.weight": the thing that the number picks
    bool tokens = false;    // of a tokenizer: numbers that another one has made get a warning
};

}  // namespace dslaunch::runtime
