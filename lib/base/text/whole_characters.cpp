#include "base/text/whole_characters.h"

#include <algorithm>
#include <string>

#include "base/text.h"

namespace dslaunch {

size_t whole_characters(std::string_view text) {
    for (size_t i = text.size() < 3 ? 0 : text.size() - 3; i < text.size(); ++i) {
        const auto lead = static_cast<unsigned char>(text[i]);
        if (lead < 0xC2 || lead > 0xF4) continue;
        const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
        const size_t missing = i + length - std::min(i + length, text.size());
        // A lead byte alone can always become a character. A second byte may be out of its range.
        const std::string whole = std::string(text.substr(i)) + std::string(missing, '\x80');
        const bool can_be_whole = text.size() - i == 1 || utf8_length(whole, 0) == length;
        if (missing > 0 && can_be_whole) return i;
    }
    return text.size();
}

}  // namespace dslaunch
