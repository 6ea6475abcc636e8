// Runs a template's tree and collects its text. tree and values -> [text]. One thread per
// interpreter; several may run the same tree.
#pragma once

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "text/chat_template/language/syntax.h"
#include "text/chat_template/run/rendered_chat.h"

namespace dslaunch::text::jinja {

// Returns the text that TREE prints with the variables VALUES. Throws LineFault.
[[nodiscard]] RenderedChat run_template(const Tree& tree,
                                        const std::vector<std::pair<std::string, Value>>& values,
                                        const Limits& limits, const std::tm& now);

}  // namespace dslaunch::text::jinja
