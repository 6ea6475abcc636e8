// The run config with the origin of each value, and the problems found while resolving it. Data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/kinds/dtype.h"
#include "config/read/train_config.h"
#include "config/run/run_config.h"

namespace dslaunch::config {

// Facts about the run that are not in the config; each may be unknown.
struct ResolveOptions {
    // The number of ranks of the run. If it is not set, the relation between the batch keys is
    // checked only if the config gives all three values. data_parallel_size is then 1 if it does
    // not follow from these values.
    std::optional<int64_t> world_size = {};
    // The type of the model's weights. `auto` in fp16 and bf16 uses it; if it is bf16, it is also
    // used when the config names no type. If not set, fp32 is used.
    std::optional<DType> model_dtype = {};
    // True if the model is a Hugging Face folder. Its forward returns a cross entropy that is
    // averaged over all targets of the global batch, as in transformers.
    bool model_is_folder = false;
    // True if the folder has weights. Learning rate, clipping and batch then have the usual values
    // for tuning, unless the user gives others.
    bool is_pretrained = false;
    // The number of training samples; an epoch is one pass over them. If not set, `steps`
    // stays 0.
    std::optional<int64_t> samples = {};
    // The number of tokens in a sample, which limits the usual micro batch. If not set, the usual
    // micro batch is one row.
    std::optional<int64_t> sample_tokens = {};
    // The value of dslaunch.data.context if the user gives none, and the reason for it. If
    // `context` is 0, the key stays unset.
    int64_t context = 0;
    std::string context_reason = {};
};

// The origin of a value that comes from the resumed run because the user gives no value.
inline constexpr const char* kBegunOrigin = "the run that is resumed";

// One line of `config check`: a key, its value and its origin.
struct ResolvedValue {
    std::string path;
    Value value;  // null if it is unset
    // "ds_config.json:3:5" | "--set" | "--steps" | "default" | "derived: FORMULA" |
    // kBegunOrigin
    Origin origin;
    bool unsaid = false;  // valid for this world size only: printed, but not in config_text()
};

// The result of resolve().
struct Resolved {
    RunConfig config;                   // only valid if problems.empty()
    std::vector<Problem> problems;      // in the order of the text; relations come last
    std::vector<ResolvedValue> values;  // every supported key that applies, in the schema's order
    std::vector<std::string> notes;     // a line for each key that was given and has no effect here
    std::vector<std::string> warnings;  // about values that are used but are probably mistakes
    // One line that lists the values that were chosen here because the user gave none, and the
    // option that changes each value; empty if nothing was chosen.
    std::string chosen;
};

}  // namespace dslaunch::config
