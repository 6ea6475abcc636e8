// A resumed run continues with the numbers with which it began, unless the user gives others. This
// is so even if the defaults have changed since. Data path: run.json, or the config in a checkpoint
// -> [here] -> train config. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/read/train_config.h"
#include "config/resolve/resolved.h"

namespace dslaunch::config {

// Returns "KEY=VALUE" for the learning rate, the clipping, the batch, the sample length and the
// steps of a run. JSON is the run's run.json or its resolved_json(). Returns nothing for any other
// text.
[[nodiscard]] std::vector<std::string> begun_values(std::string_view json);

// Adds the values of BEGUN to CONFIG, unless CONFIG already has a key with the same meaning.
// Learning rate, clipping and batch are added only for a pretrained model, because their defaults
// for such a model have changed between versions of dslaunch.
void take_begun(TrainConfig& config, const std::vector<std::string>& begun, bool is_pretrained);

// Returns the file of training data, dslaunch.data.train, that JSON names, a resolved config; empty
// if it names none.
[[nodiscard]] std::string begun_data(std::string_view json);

// Compares RESOLVED with the earlier run that JSON describes. Returns "--set KEY=VALUE" for each
// number that has its usual value (resolve_usual.cpp) in RESOLVED, but had a different, unusual
// value in the earlier run. VALUE is the earlier value.
[[nodiscard]] std::vector<std::string> begun_otherwise(const Resolved& resolved,
                                                       std::string_view json);

// Returns why the run that JSON describes cannot be continued with the adapter settings LORA, and
// which options to give instead. Returns "" if it can be continued.
[[nodiscard]] std::string other_lora_text(const LoraConfig& lora, std::string_view json);

}  // namespace dslaunch::config
