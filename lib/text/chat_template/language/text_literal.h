// The contents of a quoted text of a template.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch::text::jinja {

// What the text between the quotes, RAW, means: Python's escapes. Throws SyntaxFault of LINE for an
// escape that is none, and for half a pair of surrogates, which UTF-8 cannot hold.
[[nodiscard]] std::string text_of_literal(std::string_view raw, int line);

}  // namespace dslaunch::text::jinja
