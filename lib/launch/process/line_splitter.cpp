#include "launch/process/line_splitter.h"

#include <algorithm>
#include <utility>

namespace dslaunch::launch {

std::string LineSplitter::add(std::string_view bytes) {
    std::string lines;
    while (!bytes.empty()) {
        const size_t newline = bytes.find('\n');
        const bool ends = newline != std::string_view::npos;
        const size_t length = ends ? newline : bytes.size();
        if (is_open_ || open_lines_ == OpenLines::kAlways) {
            lines.append(bytes.substr(0, length + (ends ? 1 : 0)));
            bytes.remove_prefix(length + (ends ? 1 : 0));
            is_open_ = !ends;
            continue;
        }
        const size_t room = kLineBytesMax - rest_.size();
        if (length >= room && length > 0) {
            rest_.append(bytes.substr(0, room));
            bytes.remove_prefix(room);
            // A newline exactly at the cut belongs to this line.
            if (!bytes.empty() && bytes.front() == '\n') bytes.remove_prefix(1);
            lines += std::exchange(rest_, {}) + "\n";
            continue;
        }
        rest_.append(bytes.substr(0, length));
        bytes.remove_prefix(length + (ends ? 1 : 0));
        if (ends) lines += std::exchange(rest_, {}) + "\n";
    }
    if (open_lines_ == OpenLines::kAfterReturn && rest_.find('\r') != rest_.npos) {
        lines += std::exchange(rest_, {});
        is_open_ = true;
    }
    return lines;
}

std::string LineSplitter::finish() {
    if (rest_.empty() && !std::exchange(is_open_, false)) return {};
    return std::exchange(rest_, {}) + "\n";
}

void LinePieces::add(std::string_view bytes, const Take& line, const Take& piece) {
    while (!bytes.empty()) {
        const size_t room = kLineBytesMax - piece_.size();
        const size_t length = std::min({bytes.find_first_of("\r\n"), bytes.size(), room});
        piece_.append(bytes.substr(0, length));
        is_told_ = is_told_ && length == 0;
        bytes.remove_prefix(length);
        if (bytes.empty()) break;
        const bool is_cut = length == room && bytes.front() != '\n' && bytes.front() != '\r';
        if (bytes.front() == '\n' || is_cut) {
            line(piece_.empty() ? ended_ : piece_);
            piece_.clear();
            ended_.clear();
            is_told_ = false;
        } else if (!bytes.substr(1).starts_with('\n') && !piece_.empty()) {
            if (!std::exchange(is_told_, false)) piece(piece_);
            ended_ = std::exchange(piece_, {});
        }
        bytes.remove_prefix(is_cut ? 0 : 1);
    }
    if (piece_.empty() || std::exchange(is_told_, true)) return;
    piece(piece_);
}

}  // namespace dslaunch::launch
