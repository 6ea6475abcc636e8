// Cuts a worker's bytes into lines, and puts a program's lines together again that come in pieces.
// A line is never longer than kLineBytesMax: a longer one is cut there and goes on as the next.
// Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace dslaunch::launch {

inline constexpr size_t kLineBytesMax = 64U << 10;

// Says if the beginning of a line is given out before its end has come.
enum class OpenLines {
    kWait,         // never
    kAfterReturn,  // once it holds a carriage return: a progress bar, which is to be seen moving
    kAlways,       // a question that awaits its answer
};

class LineSplitter {
  public:
    explicit LineSplitter(OpenLines open_lines = OpenLines::kWait) : open_lines_(open_lines) {}
    // Returns the whole lines that BYTES completes, each with its newline. The rest waits, or is
    // given out unchanged as OpenLines says.
    [[nodiscard]] std::string add(std::string_view bytes);
    // Returns the waiting rest with a newline, which also ends a line that was given out in part;
    // empty when there is neither: a worker may end within a line.
    [[nodiscard]] std::string finish();

  private:
    OpenLines open_lines_;
    std::string rest_;
    bool is_open_ = false;  // the beginning of the line was given out
};

// Pieces of a line, each ended by a carriage return. The next piece replaces it on a terminal.
class LinePieces {
  public:
    using Take = std::function<void(std::string_view text)>;

    // Gives LINE each line that BYTES ends, as a terminal would show it: its last piece, without
    // the newline. Gives PIECE the text to show before a line ends.
    void add(std::string_view bytes, const Take& line, const Take& piece);

  private:
    std::string piece_;     // what came after the last return or newline
    bool is_told_ = false;  // all of piece_ was told
    std::string ended_;     // the last piece of this line that a return ended
};

}  // namespace dslaunch::launch
