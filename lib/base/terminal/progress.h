// The progress of a command's long operations. If stderr is a terminal, a line is redrawn each
// second; otherwise a line is logged after 10 s and then every 20 s, so that a sequence of
// operations never leaves 30 s without output. Log lines of this process appear above the redrawn
// line. A small thread draws the line, so that it moves even during a long call into a library.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine/small_thread.h"
#include "base/terminal/moving_line.h"

namespace dslaunch {

// The text that reports the progress of an operation. It also decides when this text is shown, but
// does not write it.
class ProgressText {
  public:
    explicit ProgressText(TimePoint now) : begin_(now), part_begin_(now), told_(now) {}

    // Begins the operation WHAT ("reading the model") at NOW. TOTAL is the number of NOUN
    // ("samples") that it processes, 0 if unknown.
    void begin(TimePoint now, std::string_view what, int64_t total = 0, std::string_view noun = {});
    // Set how many NOUN are done, and how many there are in total (0 if unknown).
    void done(int64_t count) { done_ = count; }
    void total(int64_t total) { total_ = total; }

    // Returns "reading the model  12 s", "evaluating  40/120 samples  3.3 samples/s  left 0:00:24".
    [[nodiscard]] std::string text(TimePoint now) const;
    // Returns true once the operation has taken long enough to be shown.
    [[nodiscard]] bool is_shown(TimePoint now) const { return now - begin_ >= kShownAfter; }
    // Returns true if it is time, at NOW, to log the next line about the operation. Log lines are
    // used if stderr is not a terminal on which a line can be redrawn.
    [[nodiscard]] bool is_told(TimePoint now);

  private:
    TimePoint begin_, part_begin_, told_;
    bool was_told_ = false;
    std::string what_, noun_;
    int64_t total_ = 0, done_ = 0;
};

// A ProgressText that is shown on stderr until this object is destroyed.
class Progress {
  public:
    // COMPONENT: the component of the log lines. Shows nothing if the log level is below info.
    // REQUIRES: signals that end the process may be handled in any thread, because the thread that
    // this object starts may receive them.
    explicit Progress(std::string_view component, std::string_view what, int64_t total = 0,
                      std::string_view noun = {});
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress() { end(); }

    // The same functions as in ProgressText; any thread.
    void begin(std::string_view what, int64_t total = 0, std::string_view noun = {});
    void done(int64_t count);
    void total(int64_t total);
    // Erases the line; results may be written to stdout from now on.
    void end();

  private:
    void draw_until_ended();
    void log(std::string_view line);

    std::string component_;
    SystemClock clock_;
    std::mutex mutex_;
    std::condition_variable changed_;
    ProgressText text_;
    MovingLine line_;
    bool has_ended_ = false;
    std::optional<LogSink> sink_;  // present until end()
    SmallThread thread_;           // started last, since it reads the other members
};

}  // namespace dslaunch
