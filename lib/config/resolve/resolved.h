// The run config with the origin of each value, and the problems on the way to it. Data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/kinds/dtype.h"
#include "config/read/train_config.h"
#include "config/run/run_config.h"

namespace dslaunch::config {

struct ResolveOptions {
    // The ranks of the run. Unset: the batch relation is checked only when the config gives all
    // three values, and data_parallel_size is 1 where it does not follow from them.
    std::optional<int64_t> world_size = {};
    // The type of the model's weights, which `auto` of fp16 and bf16 takes; bf16 also where nothing
    // names a type. Unset: not known, fp32.
    std::optional<DType> model_dtype = {};
    // The model is a folder of Hugging Face: its forward computes a cross entropy, whose mean is
    // over the targets of the global batch, as transformers has it.
    bool model_is_folder = false;
    // The folder has weights: rate, clipping and batch are the usual ones of tuning where nothing
    // names them.
    bool is_pretrained = false;
    // Training samples; an epoch is one pass over them. Unset: not known yet, steps stay 0.
    std::optional<int64_t> samples = {};
    // Tokens of a sample, which bound the usual micro batch. Unset: not known yet, it is one row.
    std::optional<int64_t> sample_tokens = {};
    // dslaunch.data.context where nothing names it, and the reason. 0: it stays unset.
    int64_t context = 0;
    std::string context_reason = {};
};

// The origin of a value that a resumed run takes over, since nothing names another.
inline constexpr const char* kBegunOrigin = "the run that is resumed";

struct ResolvedValue {
    std::string path;
    Value value;  // null: unset
    // "ds_config.json:3:5" | "--set" | "--steps" | "default" | "derived: FORMULA" |
    // kBegunOrigin
    Origin origin;
    bool unsaid = false;  // holds only for this world size: printed, left out of config_text()
};

struct Resolved {
    RunConfig config;                   // REQUIRES for use: problems.empty()
    std::vector<Problem> problems;      // they come in the order of the text, relations last
    std::vector<ResolvedValue> values;  // every supported key that holds, in the schema's order
    std::vector<std::string> notes;  // one line for each key that was said and has no effect here
    std::vector<std::string> warnings;  // values that hold and are likely to be mistakes
    // The choices for which nothing names a value, and the option that changes each, a line; empty:
    // no choice.
    std::string chosen;
};

}  // namespace dslaunch::config
