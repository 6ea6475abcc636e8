#include "launch/process/line_pieces.h"

#include <algorithm>
#include <utility>

#include "launch/process/line_splitter.h"

namespace dslaunch::launch {

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
