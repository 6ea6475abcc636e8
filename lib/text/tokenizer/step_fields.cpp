#include "text/tokenizer/step_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "base/text.h"

namespace dslaunch::text {
namespace {

constexpr std::string_view kStrayFields[] = {"add_prefix_space", "trim_offsets", "use_regex"};

}  // namespace

void expect_step_fields(const JsonPlace& place, std::initializer_list<std::string_view> known) {
    place.for_members([&](const std::string& name, const JsonPlace&) {
        const bool is_known = std::find(known.begin(), known.end(), name) != known.end() ||
                              std::find(std::begin(kStrayFields), std::end(kStrayFields), name) !=
                                  std::end(kStrayFields);
        if (!is_known)
            place.refuse(
                fmt::format("the field `{}` is not known to this version", printable(name)));
    });
}

}  // namespace dslaunch::text
