// The numbers with which a resumed run goes on where nothing names others: those at its begin,
// whatever the defaults are by now. Data path: run.json, or the config in a checkpoint -> [here] ->
// train config. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/read/train_config.h"
#include "config/resolve/resolved.h"

namespace dslaunch::config {

// Returns "KEY=VALUE" for the numbers of the run in JSON, its run.json or its resolved_json():
// rate, clipping, batch, length of a sample, steps. Empty for any other text.
[[nodiscard]] std::vector<std::string> begun_values(std::string_view json);

// Adds the values of BEGUN to CONFIG unless it has a key that means the same. Rate, clipping and
// batch are for a pretrained model, whose defaults have changed once.
void take_begun(TrainConfig& config, const std::vector<std::string>& begun, bool is_pretrained);

// Returns the usual numbers of RESOLVED that the run of JSON did not have, as that run's "--set
// KEY=VALUE"; empty: there are no such numbers.
[[nodiscard]] std::vector<std::string> begun_otherwise(const Resolved& resolved,
                                                       std::string_view json);

// Returns why adapters of LORA cannot go on with the training of JSON's run, and what to give;
// empty: they can.
[[nodiscard]] std::string other_lora_text(const LoraConfig& lora, std::string_view json);

}  // namespace dslaunch::config
