// Puts the lines of a program together that come in pieces: a carriage return ends a piece, which
// the next one replaces, as on a terminal. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace dslaunch::launch {

class LinePieces {
  public:
    using Take = std::function<void(std::string_view text)>;

    // Tells LINE each line that BYTES ends, as a terminal would show it: its last piece, without
    // the newline. Tells PIECE what is to be seen before a line ends.
    void add(std::string_view bytes, const Take& line, const Take& piece);

  private:
    std::string piece_;     // what came after the last return or newline
    bool is_told_ = false;  // all of piece_ was told
    std::string ended_;     // the last piece of this line that a return ended
};

}  // namespace dslaunch::launch
