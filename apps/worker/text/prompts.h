// The prompts of `dslaunch generate`, from its options or from the lines of a file, as tokens. Data
// path: command line, file -> [here] -> requests. No threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/text/text_files.h"

namespace dslaunch::worker {

struct PromptArguments {
    std::string text;                // --prompt
    std::optional<std::string> ids;  // --prompt-ids: numbers with commas or blanks between
    std::string chat;                // --chat: what a user says
    std::string system;              // --system: the instructions before the user's words
    std::string file;                // --file: a prompt each line
    std::string template_kwargs;     // --chat-template-kwargs: variables of the template, as JSON
};

struct Prompt {
    std::vector<int32_t> tokens;
    std::string shown;  // the part of the text that was given, which is printed before what is made
    std::string fault;  // why the line is no prompt; empty: it is one
    bool answers = false;         // makes an answer, which does not go on with a text
    bool follows_answer = false;  // the chat has its last answer already
};

// Returns the one prompt of the options; none given: the model's first token, or a newline. Throws
// Error{kUsage} for options that exclude each other, Error{kInput} for text without a tokenizer or
// a chat without a template.
[[nodiscard]] Prompt prompt_of(const PromptArguments& arguments, const TextFiles& files);

// Returns the text that stdin holds, without the newline at its end. Throws Error{kUsage} if there
// is no text, or stdin is a terminal, Error{kInput} if it cannot be read. Waits for its end.
[[nodiscard]] std::string text_of_stdin();

// Returns TEXT, a JSON object, as variables of a template. WHERE names it in messages. Throws
// Error{kUsage} for anything else, and for names that are not a template's own variables.
[[nodiscard]] text::TemplateVariables template_variables_of(const std::string& text,
                                                            const char* where);

// Returns the prompt of a line of a file: {"prompt": text}, {"prompt_ids": [tokens]} or
// {"messages": [chat]}, the last with `tools`, `documents`, `chat_template_kwargs` and
// `continue_final_message` where they are wanted. MORE: variables that a line does not set.
[[nodiscard]] Prompt prompt_of_line(std::string_view line, const TextFiles& files,
                                    const text::TemplateVariables& more = {});

// Returns all lines of the file of ARGUMENTS, empty ones left out; MODEL is named in messages.
// Throws Error{kInput} for a file that cannot be read, whose first line is no JSON object, or in
// which no line is a prompt.
[[nodiscard]] std::vector<Prompt> prompts_of_file(const PromptArguments& arguments,
                                                  const TextFiles& files, const std::string& model);

}  // namespace dslaunch::worker
