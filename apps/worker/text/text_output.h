// What a decoder writes, on stdout: the text of one prompt as it is made, or a line of JSON for
// each of many. Data path: requests -> engine -> [here]. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decoder/decode/batch.h"
#include "decoder/sample/sampler.h"
#include "worker/text/prompts.h"
#include "worker/text/text_files.h"

namespace dslaunch::worker {

struct WritingOptions {
    int64_t tokens_max = 200;
    std::optional<int64_t> length_max;  // in its place: tokens of a text, its prompt among them
    decoder::SamplingOptions sampling;
    std::vector<std::string> stops;
    bool ignores_end = false;
    bool as_text = true;
    int64_t sequences_max = 16;  // prompts that share a batch
};

// Returns the tokens to make after PROMPT_TOKENS. Throws Error{kInput} where length_max leaves
// none.
[[nodiscard]] int64_t tokens_max_of(const WritingOptions& options, int64_t prompt_tokens);

// Continues PROMPT; each piece is printed when it is certain.
void write_one(decoder::StepRunner& runner, const TextFiles& files, const WritingOptions& options,
               const Prompt& prompt);

// Continues PROMPTS, several at once. Prints a line of JSON for each, in their order: its index,
// numbers of tokens, the text or the tokens, and how it ended; a faulty one has its fault instead.
void write_all(decoder::StepRunner& runner, const TextFiles& files, const WritingOptions& options,
               const std::vector<Prompt>& prompts);

}  // namespace dslaunch::worker
