// stdout and stderr of the launcher, written without ever waiting: a terminal stopped by Ctrl-S, or
// a pipe whose reader does not read, must delay neither Ctrl-C nor the signs of life to the agents.
// Text that cannot be written now is kept, in order, and tried again. While an object exists, log
// lines are written through it too. An object exists as long as the job, over all its attempts. One
// thread; write() may be called from any thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/log.h"
#include "base/terminal/moving_line.h"

namespace dslaunch::launch {

// The launcher's stdout and stderr for as long as a job lives.
class StandardStreams {
  public:
    // Opens terminals and pipes a second time, since all processes that share a descriptor share
    // its non-blocking flag. If a descriptor cannot be opened a second time, the original is used,
    // and writing may wait.
    StandardStreams();
    StandardStreams(const StandardStreams&) = delete;
    StandardStreams& operator=(const StandardStreams&) = delete;
    // Waits until the reader has taken all kept text. Stops waiting if a signal that ends programs
    // is pending, or if kHurry has passed since hurry().
    ~StandardStreams() { drain(); }

    // Writes TEXT on FD, 1 or 2; never waits. If more than kKeptBytesMax bytes (after hurry():
    // kCongestedBytes) would be kept, drops all text of the call. One line reports how much was
    // dropped, as soon as there is room.
    void write(int fd, std::string_view text);
    // Writes TEXT as a piece of OWNER's line. OWNER's next piece or line replaces this piece: on a
    // terminal at once, elsewhere after a carriage return. Writes nothing while other text is kept,
    // because a reader that does not read needs no pieces. Before other text is written on the same
    // terminal, pipe or file, the piece is erased or gets a newline.
    void write_piece(int fd, int owner, std::string_view text);
    // Writes TEXT, the rest of OWNER's line with its newline, in place of OWNER's piece.
    void write_line(int fd, int owner, std::string_view text);
    // Writes TEXT on FD as write() does. TEXT may end within a line, and the next call continues
    // that line. Until the line has ended, no moving line is shown on the same terminal, and other
    // text on the same terminal, pipe or file begins on a new line.
    void write_text(int fd, std::string_view text);
    // Returns true if stderr is a terminal on which a moving line can be shown now.
    [[nodiscard]] bool moves() const;
    // Shows TEXT as the last line of the terminal at stderr, until other text is written on stdout
    // or stderr. An empty TEXT erases the line, which is not shown again. REQUIRES: moves(), or
    // TEXT is empty.
    void show_moving(std::string_view text);
    // Shows the moving line again if other text has replaced it.
    void show_moving_again();
    // Writes as much of the kept text as possible; never waits.
    void flush();
    // Waits for the last text to be written, as the destructor does.
    void drain();
    // Returns true if the reader of FD (1 or 2) is gone; text for it is lost from then on.
    [[nodiscard]] bool reader_is_gone(int fd) const;
    // Returns the errno of the first write to FD (1 or 2) that failed although the reader was not
    // gone, such as on a full disk; 0 if there was no such write.
    [[nodiscard]] int fault(int fd) const;
    // Returns true if so much text is kept that nothing more should be read from the ranks.
    [[nodiscard]] bool is_congested() const;
    // Returns true if any text is kept.
    [[nodiscard]] bool has_kept() const;
    // Called by a loop that reads the ranks' output, before the loop waits at most LEFT for more
    // output. Returns how long the loop may wait for the hosts. If nobody reads the launcher's
    // output, so that too much text is kept, this function waits itself and returns nothing. The
    // loop must then leave the ranks' output in their pipes, and polls the hosts only every kLook,
    // to keep connections alive. IS_ENDING: the job is ending, so the loop must read even then.
    [[nodiscard]] std::optional<std::chrono::milliseconds> make_way(std::chrono::milliseconds left,
                                                                    int wake_fd, bool is_ending);
    // Waits until the oldest kept text can be written, WAKE_FD is readable, or TIMEOUT is over.
    void wait(std::chrono::milliseconds timeout, int wake_fd) const;
    // Shortens the wait for the last text to kHurry, since somebody wants the end at once.
    void hurry();
    // Returns true after hurry().
    [[nodiscard]] bool hurries() const;

    static constexpr size_t kCongestedBytes = 1U << 20;
    static constexpr size_t kKeptBytesMax = 64U << 20;
    static constexpr std::chrono::milliseconds kHurry{200};
    static constexpr std::chrono::milliseconds kTick{20};  // pause between two tries while text is
                                                           // kept
    static constexpr std::chrono::milliseconds kLook{1'000};

  private:
    static constexpr int kNobody = -1;

    struct Piece {
        int fd;
        std::string text;
    };
    // Returns the number of bytes written, or a negative errno. REQUIRES, for the next five
    // functions: mutex_ is held.
    [[nodiscard]] ssize_t try_write(int fd, std::string_view text);
    void write_or_keep(int fd, std::string_view text);
    void end_piece(int fd, int owner);
    void make_room(int fd);
    void keep(int fd, std::string_view text);

    // A descriptor, 1 or 2.
    struct Stream {
        int fd;
        UniqueFd reopened = {};  // invalid: the descriptor itself is used
        bool is_socket = false;
        bool erases_lines = false;    // true: it is a terminal
        bool reader_is_gone = false;  // from here: guarded by mutex_
        int fault = 0;
        bool is_in_line = false;    // as piece_owner: of the terminal, pipe or file
        int piece_owner = kNobody;  // the owner of the piece on this terminal, pipe or file. If
                                    // stdout and stderr are one, only stdout's member is used
    };
    // Returns the stream of FD.
    [[nodiscard]] Stream& stream(int fd) { return streams_[static_cast<size_t>(fd - 1)]; }
    [[nodiscard]] const Stream& stream(int fd) const {
        return streams_[static_cast<size_t>(fd - 1)];
    }
    // Returns the owner of the piece on the terminal, pipe or file at FD.
    [[nodiscard]] int& piece_owner(int fd) { return stream(are_one_ ? 1 : fd).piece_owner; }
    // Returns true if write_text() has written the beginning of a line on the terminal, pipe or
    // file at FD.
    [[nodiscard]] bool& is_in_line(int fd) { return stream(are_one_ ? 1 : fd).is_in_line; }

    std::array<Stream, 2> streams_ = {{{1}, {2}}};
    bool are_one_ = false;      // stdout and stderr lead to one terminal or file
    mutable std::mutex mutex_;  // guards the members from here to hurries_
    std::string piece_;         // the last piece that was written
    MovingLine moving_{2};
    // False if stdout goes to a program that may be about to write on this terminal.
    bool shows_again_ = true;
    std::deque<Piece> kept_;
    size_t kept_bytes_ = 0;
    int64_t dropped_bytes_ = 0;
    bool hurries_ = false;
    std::chrono::steady_clock::time_point next_look_;  // next poll of the hosts, while nobody reads
    LogSink log_{[this](std::string_view line) { write(2, line); }};
};

// Writes TEXT on stderr and waits for its reader as ~StandardStreams() does. Call it before or
// after a job, while signals that end the program are held back.
void write_last_words(std::string_view text);

}  // namespace dslaunch::launch
