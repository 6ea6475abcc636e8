// The prompts of `dslaunch generate`, from its options or from the lines of a file, as tokens. Data
// path: command line, file -> [here] -> requests. No threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/text/text_files.h"

namespace dslaunch::worker {

struct PromptArguments {
    std::string text;          // --prompt
    std::vector<int64_t> ids;  // --prompt-ids
    std::string chat;          // --chat: what a user says
    std::string system;        // --system: what the model is told before
    std::string file;          // --file: a prompt each line
};

struct Prompt {
    std::vector<int32_t> tokens;
    std::string shown;  // the part of the text that was given, which is printed before what is made
    std::string fault;  // why the line is no prompt; empty: it is one
};

// The one prompt of the options; none given: a newline. Throws Error{kUsage} for options that
// exclude each other, Error{kInput} for text without a tokenizer or a chat without a template.
[[nodiscard]] Prompt prompt_of(const PromptArguments& arguments, const TextFiles& files);

// A line of a file: {"prompt": text}, {"prompt_ids": [tokens]} or {"messages": [chat]}.
[[nodiscard]] Prompt prompt_of_line(std::string_view line, const TextFiles& files);

// All lines of the file, empty ones left out. Throws Error{kInput} for a file that cannot be read.
[[nodiscard]] std::vector<Prompt> prompts_of_file(const std::string& path, const TextFiles& files);

}  // namespace dslaunch::worker
