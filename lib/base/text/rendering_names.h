// The names that a rendering itself gives to a chat template. `chat_template_kwargs` of rows, of
// requests and of options may not have them.
#pragma once

#include <array>
#include <string_view>

namespace dslaunch {

inline constexpr std::array<std::string_view, 7> kRenderingNames = {
    "messages",      "tools",   "documents", "add_generation_prompt", "continue_final_message",
    "chat_template", "tokenize"};

}  // namespace dslaunch
