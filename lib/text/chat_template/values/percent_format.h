// `'%s of %d' % values`: Python's printf-like formatting.
#pragma once

#include "text/chat_template/values/value.h"

#include <string>
#include <string_view>

namespace dslaunch::text::jinja {

// VALUES: a tuple, a dict for `%(name)s`, or the one value. Throws Fault where Python raises.
[[nodiscard]] std::string percent_format(Meter& meter, std::string_view format,
                                         const Value& values);

}  // namespace dslaunch::text::jinja
