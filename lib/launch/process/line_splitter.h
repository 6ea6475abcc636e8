// Cuts a worker's bytes into lines, and joins the pieces in which a program writes its lines. Ends
// a line after kLineBytesMax bytes if it is longer; the rest becomes the next line. Lines that are
// passed on at once (OpenLines::kAlways) are never cut. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace dslaunch::launch {

inline constexpr size_t kLineBytesMax = 64U << 10;

// Determines whether the beginning of a line is returned before its end has arrived.
enum class OpenLines {
    kWait,         // never
    kAfterReturn,  // after a carriage return, for a progress bar, which should be seen moving
    kAlways,       // always, for a question that waits for its answer, and for a job's result
};

// The lines of one stream of a worker.
class LineSplitter {
  public:
    explicit LineSplitter(OpenLines open_lines = OpenLines::kWait) : open_lines_(open_lines) {}
    // Returns the whole lines that BYTES completes, each with its newline. The rest is kept, or is
    // returned unchanged if OpenLines allows it.
    [[nodiscard]] std::string add(std::string_view bytes);
    // Called when the worker has ended, perhaps within a line. Ends the open line: returns its kept
    // rest with a newline, or only a newline if the whole line was returned before. Returns an
    // empty text if no line is open.
    [[nodiscard]] std::string finish();

  private:
    OpenLines open_lines_;
    std::string rest_;
    bool is_open_ = false;  // the beginning of the line was returned
};

// Pieces of a line, each ended by a carriage return. On a terminal each piece replaces the previous
// piece.
class LinePieces {
  public:
    using Take = std::function<void(std::string_view text)>;

    // Calls LINE for each line that BYTES ends, in the form that a terminal would show: its last
    // piece, without the newline. Calls PIECE with a piece of a line that has not ended yet.
    void add(std::string_view bytes, const Take& line, const Take& piece);

  private:
    std::string piece_;     // the text after the last return or newline
    bool is_told_ = false;  // all of piece_ was passed on
    std::string ended_;     // the last piece of this line that a return ended
};

}  // namespace dslaunch::launch
