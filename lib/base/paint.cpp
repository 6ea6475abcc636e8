#include "base/paint.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <utility>

namespace dslaunch {

bool takes_colours(int fd) {
    const char* none = std::getenv("NO_COLOR");
    const char* kind = std::getenv("TERM");
    return ::isatty(fd) == 1 && (none == nullptr || *none == '\0') && kind != nullptr &&
           std::string_view(kind) != "dumb";
}

std::string painted(std::string text) {
    constexpr std::string_view kName = "dslaunch: ";
    constexpr std::string_view kEnd = "\x1b[0m";
    for (const auto& [word, begin] :
         {std::pair<std::string_view, std::string_view>{"error:", "\x1b[1;31m"},
          {"warning:", "\x1b[33m"}}) {
        if (!text.starts_with(kName) || text.compare(kName.size(), word.size(), word) != 0)
            continue;
        text.insert(kName.size() + word.size(), kEnd);
        text.insert(kName.size(), begin);
        break;
    }
    return text;
}

}  // namespace dslaunch
