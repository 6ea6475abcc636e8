// stdout and stderr of the launcher, written without ever waiting: a terminal that is stopped by
// Ctrl-S, or a reader of a pipe that stands still, must hold up neither Ctrl-C nor the signs of
// life to the agents. What cannot be written now is kept, in order, and tried again. Log lines go
// this way too as long as an object lives. They live as long as the job, over all its attempts. One
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
    // Terminals and pipes are opened once more, since the flag that makes writing return at once
    // belongs to everybody who shares the descriptor. What cannot be opened again is written as it
    // is, and may wait.
    StandardStreams();
    StandardStreams(const StandardStreams&) = delete;
    StandardStreams& operator=(const StandardStreams&) = delete;
    // The last words may wait for a reader who stands still: until it reads on, a signal that ends
    // programs is pending, or kHurry is over after hurry().
    ~StandardStreams() { drain(); }

    // FD: 1 or 2. Never waits. Text beyond kKeptBytesMax (kCongestedBytes after hurry()) is
    // dropped, whole calls at a time, and one line tells how much as soon as there is room.
    void write(int fd, std::string_view text);
    // Writes TEXT as a piece of a line of OWNER's, which its next piece or its line replaces: on a
    // terminal at once, elsewhere ended by a carriage return. Left out while something is kept: a
    // reader who stands still has no use for it. Other text that is written on the same terminal,
    // pipe or file first takes the place of the piece, or ends its line.
    void write_piece(int fd, int owner, std::string_view text);
    // Writes TEXT, the rest of OWNER's line with its newline, in the place of its piece.
    void write_line(int fd, int owner, std::string_view text);
    // True if a line can move on the terminal at stderr now.
    [[nodiscard]] bool moves() const;
    // Shows TEXT as the last line of that terminal, until other text is written on stdout or
    // stderr. Empty: the line is erased, and none comes back. REQUIRES: moves(), or TEXT is empty.
    void show_moving(std::string_view text);
    // Shows it once more where other text has taken its place.
    void show_moving_again();
    // Writes what it can of what was kept; never waits.
    void flush();
    // Waits for the last words as the end of this object does.
    void drain();
    // FD: 1 or 2. Whoever read it is gone: what is written there is lost from then on.
    [[nodiscard]] bool reader_is_gone(int fd) const;
    // FD: 1 or 2. The errno of the first write there that failed for another reason, as a full
    // disk; 0: none did.
    [[nodiscard]] int fault(int fd) const;
    // True if so many bytes are kept that no more should be read from the ranks.
    [[nodiscard]] bool is_congested() const;
    [[nodiscard]] bool has_kept() const;
    // A loop that reads the ranks' output calls this before it waits for more, at most LEFT.
    // Returns how long it may wait for the hosts. Returns nothing if nobody reads this end: then
    // the ranks wait in their pipes, this call has waited, and the hosts are looked at every kLook
    // only, so that all stay in touch. IS_ENDING: the last words of the ranks are read in any case.
    [[nodiscard]] std::optional<std::chrono::milliseconds> make_way(std::chrono::milliseconds left,
                                                                    int wake_fd, bool is_ending);
    // Waits until the oldest kept text can be written, WAKE_FD is readable, or TIMEOUT is over.
    void wait(std::chrono::milliseconds timeout, int wake_fd) const;
    // Somebody wants the end at once: the last words are not waited for.
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
    // Bytes written, or a negative errno. REQUIRES of these five: mutex_ is held.
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

// Writes TEXT on stderr and waits for its reader as the end of a StandardStreams does: for words
// before and after a job, while end signals are held back.
void write_last_words(std::string_view text);

// The launcher's own stdin for rank 0, where the launcher starts it on this machine, as deepspeed
// and torchrun hand it down, and where mpirun or srun does. Nothing is read here, so that nothing
// is taken from a program that reads after this one; but mpirun and srun read ahead, and of a
// terminal a thread passes on what is typed.

// A copy of stdin, close-on-exec; not valid: it is closed, or a terminal that this process has in
// the background, whose input is another program's.
[[nodiscard]] UniqueFd stdin_for_worker();

// stdin for a program that passes it on itself. It runs in a process group of its own, which may
// not read this process's terminal, so that it gets a pipe in a terminal's place.
class StdinForStarter {
  public:
    // Not WANTED: fd() is -1. Throws Error{kSetup} when descriptors or threads are short.
    explicit StdinForStarter(bool wanted);
    StdinForStarter(const StdinForStarter&) = delete;
    StdinForStarter& operator=(const StdinForStarter&) = delete;
    // Does not wait for who types.
    ~StdinForStarter();

    // -1: there is none, as in stdin_for_worker().
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

// Adds the words by which the agent that such a program starts gives rank 0 its own stdin.
void add_stdin_words(std::vector<std::string>& words, const StdinForStarter& input);

}  // namespace dslaunch::launch
