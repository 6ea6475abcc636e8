// The names of filters and tests that a template uses, against those that there are.
#pragma once

#include "text/chat_template/language/syntax.h"

#include <string_view>

namespace dslaunch::text::jinja {

// Which names filters and tests have. Jinja2 refuses a template with others while it compiles it,
// but where an `if` decides whether they are reached.
struct KnownNames {
    bool (*is_filter)(std::string_view name) = nullptr;
    bool (*is_test)(std::string_view name) = nullptr;
};

// Throws SyntaxFault for an unknown name outside of what an `if` decides about.
void require_known_names(const Tree& tree, const KnownNames& known);

}  // namespace dslaunch::text::jinja
