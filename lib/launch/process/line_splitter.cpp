#include "launch/process/line_splitter.h"

#include <utility>

namespace dslaunch::launch {

std::string LineSplitter::add(std::string_view bytes) {
    std::string lines;
    while (!bytes.empty()) {
        const size_t newline = bytes.find('\n');
        const bool ends = newline != std::string_view::npos;
        const size_t length = ends ? newline : bytes.size();
        if (is_open_) {
            lines.append(bytes.substr(0, length + (ends ? 1 : 0)));
            bytes.remove_prefix(length + (ends ? 1 : 0));
            is_open_ = !ends;
            continue;
        }
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
    const bool gives = open_lines_ == OpenLines::kAlways ||
                       (open_lines_ == OpenLines::kAfterReturn && rest_.find('\r') != rest_.npos);
    if (gives && !rest_.empty()) {
        lines += std::exchange(rest_, {});
        is_open_ = true;
    }
    return lines;
}

std::string LineSplitter::finish() {
    if (rest_.empty() && !std::exchange(is_open_, false)) return {};
    return std::exchange(rest_, {}) + "\n";
}

}  // namespace dslaunch::launch
