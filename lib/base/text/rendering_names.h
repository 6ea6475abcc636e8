// The names that are passed to a chat template whenever it is rendered. They must not appear in
// `chat_template_kwargs` of rows, requests and options.
#pragma once

#include <array>
#include <string_view>

namespace dslaunch {

inline constexpr std::array<std::string_view, 7> kRenderingNames = {
    "messages",      "tools",   "documents", "add_generation_prompt", "continue_final_message",
    "chat_template", "tokenize"};

}  // namespace dslaunch
