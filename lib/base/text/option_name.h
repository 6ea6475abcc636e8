// The names of options, in which `-` and `_` are equivalent, and their names in other tools. Used
// for the command lines of dslaunch and dsworker. No threads: pure.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch {

// Replaces each `_` in an option's name by `-`: "--top_k=a_b" -> "--top-k=a_b".
[[nodiscard]] inline std::string with_dashes(std::string word) {
    if (word.starts_with("--")) {
        const auto end = std::find(word.begin(), word.end(), '=');
        std::replace(word.begin(), end, '_', '-');
    }
    return word;
}

// Option names of other tools (Hugging Face, llama.cpp, vLLM, axolotl), each with the name used
// here. These names are accepted, but the help does not list them.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 58> kOtherOptionNames = {
    {
        {"max-new-tokens", "tokens"},
        {"max-tokens", "tokens"},
        {"n-predict", "tokens"},
        {"temp", "temperature"},
        {"repeat-penalty", "repetition-penalty"},
        {"ctx-size", "context"},
        {"n-ctx", "context"},
        {"max-model-len", "context"},
        {"max-seq-length", "context"},
        {"max-seq-len", "context"},
        {"seq-len", "context"},
        {"seq-length", "context"},
        {"sequence-len", "context"},
        {"block-size", "context"},
        {"cutoff-len", "context"},
        {"lora-adapter", "adapter"},
        {"adapter-path", "adapter"},
        {"lora-path", "adapter"},
        {"lora-modules", "adapter"},
        {"quantization", "weights"},
        {"num-threads", "threads"},
        {"num-proc", "threads"},
        {"system-prompt", "system"},
        {"out", "output"},
        {"output-file", "output"},
        {"outfile", "output"},
        {"tokenizer", "model"},
        {"served-model-name", "name"},
        {"batch-size", "micro-batch"},
        {"micro-batch-size", "micro-batch"},
        {"micro-batch-size-per-gpu", "micro-batch"},
        {"train-micro-batch-size-per-gpu", "micro-batch"},
        {"per-gpu-train-batch-size", "micro-batch"},
        {"grad-accum", "accumulation"},
        {"grad-accumulation", "accumulation"},
        {"accumulate-grad-batches", "accumulation"},
        {"num-epochs", "epochs"},
        {"n-epochs", "epochs"},
        {"num-steps", "steps"},
        {"train-steps", "steps"},
        {"iters", "steps"},
        {"max-iters", "steps"},
        {"train-iters", "steps"},
        {"num-train-steps", "steps"},
        {"train-file", "data"},
        {"train-data", "data"},
        {"data-path", "data"},
        {"dataset", "data"},
        {"validation-file", "eval-data"},
        {"eval-file", "eval-data"},
        {"val-data", "eval-data"},
        {"num-warmup-steps", "warmup-steps"},
        {"lr-warmup-steps", "warmup-steps"},
        {"out-dir", "output"},
        {"resume-from-checkpoint", "resume"},
        {"max-trials", "trials"},
        {"num-trials", "trials"},
        {"n-trials", "trials"},
    }};

// Returns the names that other tools have for the option NAME.
[[nodiscard]] inline std::vector<std::string> other_names(std::string_view name) {
    std::vector<std::string> names;
    for (const auto& [other, own] : kOtherOptionNames)
        if (own == name) names.emplace_back(other);
    return names;
}

// Returns true if NAME is another tool's name for an option.
[[nodiscard]] inline bool is_other_name(std::string_view name) {
    return std::ranges::any_of(kOtherOptionNames,
                               [&](const auto& row) { return row.first == name; });
}

}  // namespace dslaunch
