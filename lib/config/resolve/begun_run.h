// The numbers with which a resumed run continues if the user gives no others: the ones with which
// it began, even if the defaults have changed since. Data path: run.json, or the config in a
// checkpoint -> [here] -> train config. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/read/train_config.h"
#include "config/resolve/resolved.h"

namespace dslaunch::config {

// Returns "KEY=VALUE" for these numbers of the run that JSON, its run.json or its resolved_json(),
// describes: learning rate, clipping, batch, sample length, steps. Empty for any other text.
[[nodiscard]] std::vector<std::string> begun_values(std::string_view json);

// Adds the values of BEGUN to CONFIG, except those for which CONFIG has a key with the same
// meaning. Learning rate, clipping and batch are added only for a pretrained model, because its
// defaults once changed.
void take_begun(TrainConfig& config, const std::vector<std::string>& begun, bool is_pretrained);

// Returns the numbers for which RESOLVED uses a usual value (resolve_usual.cpp) and the run that
// JSON describes used another one that was not a usual value, as "--set KEY=VALUE" with the values
// of that run. Empty if there are no such numbers.
[[nodiscard]] std::vector<std::string> begun_otherwise(const Resolved& resolved,
                                                       std::string_view json);

// Returns why adapters with the settings LORA cannot continue the training of the run that JSON
// describes, and what to give; empty if they can.
[[nodiscard]] std::string other_lora_text(const LoraConfig& lora, std::string_view json);

}  // namespace dslaunch::config
