// The prompts of `dslaunch generate` as tokens, from its options or from the lines of a file. Data
// path: command line, file -> [here] -> requests. No threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/text/text_files.h"

namespace dslaunch::worker {

// The options of `dslaunch generate` that give its prompts. Empty: not given.
struct PromptArguments {
    std::string text;                    // --prompt
    std::optional<std::string> ids;      // --prompt-ids: numbers, separated by commas or blanks
    std::string chat;                    // --chat: what a user says, or messages in JSON
    std::string system;                  // --system: the instructions before the user's words
    std::string file;                    // --file: one prompt per line
    const char* file_option = "--file";  // the option that named it, for messages
    std::string template_kwargs;  // --chat-template-kwargs: variables of the template, as JSON
};

// A text to continue, or the fault of a line that should be one.
struct Prompt {
    std::vector<int32_t> tokens;
    std::string shown;            // the given part of the text, printed before the generated part
    std::string fault;            // why the line is not a prompt; empty if it is
    bool answers = false;         // the model answers; it does not continue a text
    bool follows_answer = false;  // the chat already ends with an answer
};

// Returns the one prompt that the options give. If they give none, it is the model's first token,
// or a newline. Throws Error{kUsage} for options that exclude each other, Error{kInput} for text
// without a tokenizer and for a chat without a template.
[[nodiscard]] Prompt prompt_of(const PromptArguments& arguments, const TextFiles& files);

// Reads stdin to its end and returns the text without the newlines at its end. Throws Error{kUsage}
// if there is no text or stdin is a terminal, Error{kInput} if it cannot be read.
[[nodiscard]] std::string text_of_stdin();

// Converts TEXT, which must be a JSON object, to template variables. WHERE names TEXT in messages.
// Throws Error{kUsage} for any other text, and for names that a user may not set.
[[nodiscard]] text::TemplateVariables template_variables_of(const std::string& text,
                                                            const char* where);

// Returns the prompt in a line of a file: {"prompt": text}, {"prompt_ids": [tokens]} or
// {"messages": [chat]}. The last form may also have `tools`, `documents`, `chat_template_kwargs`
// and `continue_final_message`. MORE: template variables for a line that does not set them.
[[nodiscard]] Prompt prompt_of_line(std::string_view line, const TextFiles& files,
                                    const text::TemplateVariables& more = {});

// Returns a prompt for each line of the file that ARGUMENTS name, except empty lines. MODEL is
// named in messages. Throws Error{kInput} if the file cannot be read, if its first line is not a
// JSON object, or if no line is a prompt.
[[nodiscard]] std::vector<Prompt> prompts_of_file(const PromptArguments& arguments,
                                                  const TextFiles& files, const std::string& model);

}  // namespace dslaunch::worker
