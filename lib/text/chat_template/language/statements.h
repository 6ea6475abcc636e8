// The parser of a whole template: tags and the text between them.
#pragma once

#include "text/chat_template/language/known_names.h"
#include "text/chat_template/language/syntax.h"

#include <string_view>

namespace dslaunch::text::jinja {

// Throws SyntaxFault. REQUIRES: SOURCE is valid UTF-8.
[[nodiscard]] Tree parse_template(std::string_view source, const KnownNames& known);

}  // namespace dslaunch::text::jinja
