// What the data must supply: forward's arguments as the lowered graph has them, beside the config's
// words on data and loss. A value type.
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
    config::LossConfig loss;                   // unless kModel, the last argument is its target
    std::vector<std::string> arguments;        // forward's, in order
    std::vector<c10::TypePtr> argument_types;  // as many

    [[nodiscard]] bool has_target() const {
        return loss.kind != config::LossKind::kModel && !arguments.empty();
    }
};

// Integers must lie in [0, count); one more value may be allowed beside them.
struct IndexLimit {
    int64_t count = 0;
    std::optional<int64_t> also = {};  // cross entropy's -100: such a target counts for nothing
    std::string what = {};             // "class", "row of wte.weight": what the number picks
};

}  // namespace dslaunch::runtime
