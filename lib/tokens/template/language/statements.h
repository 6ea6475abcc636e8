// The parser of a whole template: tags and the text between them.
#pragma once

#include "tokens/template/language/known_names.h"
#include "tokens/template/language/syntax.h"

#include <string_view>

namespace dslaunch::tokens::jinja {

// Throws SyntaxFault. REQUIRES: SOURCE is valid UTF-8.
[[nodiscard]] Tree parse_template(std::string_view source, const KnownNames& known);

}  // namespace dslaunch::tokens::jinja
