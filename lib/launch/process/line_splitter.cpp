#include "launch/process/line_splitter.h"

#include <utility>

namespace dslaunch::launch {

std::string LineSplitter::add(std::string_view bytes) {
    std::string lines;
    while (!bytes.empty()) {
        const size_t newline = bytes.find('\n');
        const bool ends = newline != std::string_view::npos;
        const size_t length = ends ? newline : bytes.size();
        const size_t room = kLineBytesMax - rest_.size();
        if (length >= room && length > 0) {
            rest_.append(bytes.substr(0, room));
            bytes.remove_prefix(room);
            // The newline that stands exactly at the cut belongs to this line.
            if (!bytes.empty() && bytes.front() == '\n') bytes.remove_prefix(1);
            lines += std::exchange(rest_, {}) + "\n";
            continue;
        }
        rest_.append(bytes.substr(0, length));
        bytes.remove_prefix(length + (ends ? 1 : 0));
        if (ends) lines += std::exchange(rest_, {}) + "\n";
    }
    return lines;
}

std::string LineSplitter::finish() {
    return rest_.empty() ? std::string() : std::exchange(rest_, {}) + "\n";
}

}  // namespace dslaunch::launch
