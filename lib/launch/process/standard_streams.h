// stdout and stderr of the launcher, written without ever waiting: a terminal stopped by Ctrl-S, or
// a pipe's reader that stands still, must hold up neither Ctrl-C nor the signs of life to the
// agents. Text that cannot be written now is kept, in order, and tried again. Log lines go this way
// too as long as an object lives. An object lives as long as the job, over all its attempts. One
// thread; write() is callable from any.
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
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "base/small_thread.h"
#include "base/terminal/moving_line.h"

namespace dslaunch::launch {

class StandardStreams {
  public:
    // Opens terminals and pipes once more, since the flag that makes writing return at once belongs
    // to everybody who shares the descriptor. A descriptor that cannot be opened again is written
    // as it is, and may wait.
    StandardStreams();
    StandardStreams(const StandardStreams&) = delete;
    StandardStreams& operator=(const StandardStreams&) = delete;
    // Waits for a reader of the last words who stands still, until it reads on, a signal that ends
    // programs is pending, or kHurry is over after hurry().
    ~StandardStreams() { drain(); }

    // Writes TEXT on FD, 1 or 2; never waits. Drops text beyond kKeptBytesMax (kCongestedBytes
    // after hurry()), whole calls at a time; one line tells how much as soon as there is room.
    void write(int fd, std::string_view text);
    // Writes TEXT as a piece of OWNER's line. OWNER's next piece or line replaces it: on a terminal
    // at once, elsewhere after a carriage return. A piece is left out while text is kept: a reader
    // who stands still has no use for it. Other text on the same terminal, pipe or file first takes
    // the place of the piece, or ends its line.
    void write_piece(int fd, int owner, std::string_view text);
    // Writes TEXT, the rest of OWNER's line with its newline, in the place of its piece.
    void write_line(int fd, int owner, std::string_view text);
    // Returns true if a line can move on the terminal at stderr now.
    [[nodiscard]] bool moves() const;
    // Shows TEXT as the last line of that terminal, until other text is written on stdout or
    // stderr. Empty: the line is erased, and none comes back. REQUIRES: moves(), or TEXT is empty.
    void show_moving(std::string_view text);
    // Shows it again if other text has taken its place.
    void show_moving_again();
    // Writes as much of the kept text as possible; never waits.
    void flush();
    // Waits for the last words as the destructor does.
    void drain();
    // Returns true if the reader of FD (1 or 2) is gone: text for it is lost from then on.
    [[nodiscard]] bool reader_is_gone(int fd) const;
    // Returns the errno of the first write to FD (1 or 2) that failed for another reason, as a full
    // disk; 0: no write failed.
    [[nodiscard]] int fault(int fd) const;
    // Returns true if so many bytes are kept that nothing more should be read from the ranks.
    [[nodiscard]] bool is_congested() const;
    [[nodiscard]] bool has_kept() const;
    // A loop that reads the ranks' output calls this before it waits for more, at most LEFT.
    // Returns how long it may wait for the hosts. Returns nothing if nobody reads this end: the
    // ranks wait in their pipes, this call has waited, and the hosts are looked at only every
    // kLook, so that all stay in touch. IS_ENDING: the ranks' last words are read in any case.
    [[nodiscard]] std::optional<std::chrono::milliseconds> make_way(std::chrono::milliseconds left,
                                                                    int wake_fd, bool is_ending);
    // Waits until the oldest kept text can be written, WAKE_FD is readable, or TIMEOUT is over.
    void wait(std::chrono::milliseconds timeout, int wake_fd) const;
    // Stops waiting for the last words: somebody wants the end at once.
    void hurry();
    [[nodiscard]] bool hurries() const;

    static constexpr size_t kCongestedBytes = 1U << 20;
    static constexpr size_t kKeptBytesMax = 64U << 20;
    static constexpr std::chrono::milliseconds kHurry{200};
    static constexpr std::chrono::milliseconds kTick{20};  // while something is kept
    static constexpr std::chrono::milliseconds kLook{1'000};

  private:
    struct Piece {
        int fd;
        std::string text;
    };
    // Returns the bytes written, or a negative errno. REQUIRES of these five: mutex_ is held.
    [[nodiscard]] ssize_t try_write(int fd, std::string_view text);
    void write_or_keep(int fd, std::string_view text);
    void end_piece(int fd, int owner);
    void make_room(int fd);
    void keep(int fd, std::string_view text);

    static constexpr int kNobody = -1;

    std::array<UniqueFd, 3> reopened_;  // [1], [2]; invalid: the descriptor itself is used
    std::array<bool, 3> is_socket_ = {};
    std::array<bool, 3> is_terminal_ = {};     // one that can erase a line
    std::array<size_t, 3> place_ = {0, 1, 2};  // equal for descriptors of one terminal or file
    mutable std::mutex mutex_;                 // guards what stands from here to hurry_
    std::array<bool, 3> reader_is_gone_ = {};
    std::array<int, 3> faults_ = {};
    std::array<int, 3> piece_owner_ = {kNobody, kNobody, kNobody};  // by place: who has a piece
                                                                    // there
    std::string piece_;                                             // the last one that was written
    MovingLine moving_{2};
    // False: stdout leads to a program that may be about to write on this terminal.
    bool shows_again_ = true;
    std::deque<Piece> kept_;
    size_t kept_bytes_ = 0;
    int64_t dropped_bytes_ = 0;
    bool hurry_ = false;
    std::chrono::steady_clock::time_point next_look_;  // at the hosts, while nobody reads
    LogSink log_{[this](std::string_view line) { write(2, line); }};
};

// Writes TEXT on stderr and waits for its reader as ~StandardStreams() does: for words before and
// after a job, while end signals are held back.
void write_last_words(std::string_view text);

// Hands the launcher's own stdin to rank 0 if the launcher starts it on this machine, as deepspeed
// and torchrun do, or if mpirun or srun starts it. Nothing is read here, so that a program that
// reads after this one misses nothing. But mpirun and srun read ahead, and from a terminal a thread
// passes on what is typed.

// Returns a copy of stdin, close-on-exec. Not valid: stdin is closed, or a terminal that has this
// process in the background, so that its input is another program's.
[[nodiscard]] UniqueFd stdin_for_worker();

// stdin for a program that passes it on. The program runs in a process group of its own, which may
// not read this process's terminal, so it gets a pipe instead of a terminal.
class StdinForStarter {
  public:
    // Not WANTED: fd() is -1. Throws Error{kSetup} when descriptors or threads are short.
    explicit StdinForStarter(bool wanted);
    StdinForStarter(const StdinForStarter&) = delete;
    StdinForStarter& operator=(const StdinForStarter&) = delete;
    // Does not wait for the user to type.
    ~StdinForStarter();

    // Returns the descriptor; -1: there is none, as in stdin_for_worker().
    [[nodiscard]] int fd() const { return own_.valid() ? own_.get() : typed_.read_end.get(); }
    [[nodiscard]] bool is_terminal() const { return typed_.read_end.valid(); }

  private:
    void pass_on();

    UniqueFd own_;  // not a terminal
    UniqueFd terminal_;
    Pipe typed_;
    Pipe wake_;
    SmallThread thread_;  // started last
};

// Adds the words that make such a program's agent give rank 0 its own stdin.
void add_stdin_words(std::vector<std::string>& words, const StdinForStarter& input);

}  // namespace dslaunch::launch
