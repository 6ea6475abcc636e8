// The progress of a command's long work: on a terminal at stderr a line that moves each second,
// elsewhere a log line after 10 s and then each 20 s, so that successive works never leave 30 s
// silent. Meanwhile log lines of this process have lines of their own. A small thread draws, so
// that the line moves while the work is deep in a library.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"
#include "base/small_thread.h"
#include "base/terminal/moving_line.h"

namespace dslaunch {

// Composes the text about a work and decides when it is shown. No thread, no descriptor.
class ProgressText {
  public:
    explicit ProgressText(TimePoint now) : begin_(now), part_begin_(now), told_(now) {}

    // Begins WHAT, in words ("reading the model"), at NOW. TOTAL: the number of NOUN ("samples")
    // that it has; 0: not known.
    void begin(TimePoint now, std::string_view what, int64_t total = 0, std::string_view noun = {});
    void done(int64_t count) { done_ = count; }
    void total(int64_t total) { total_ = total; }

    // Returns "reading the model  12 s", "evaluating  40/120 samples  3.3 samples/s  left 0:00:24".
    [[nodiscard]] std::string text(TimePoint now) const;
    // Returns true once the work has taken long enough to be shown.
    [[nodiscard]] bool is_shown(TimePoint now) const { return now - begin_ >= kShownAfter; }
    // Returns true each time a log line about the work is due at NOW, where no line moves.
    [[nodiscard]] bool is_told(TimePoint now);

  private:
    TimePoint begin_, part_begin_, told_;
    bool was_told_ = false;
    std::string what_, noun_;
    int64_t total_ = 0, done_ = 0;
};

class Progress {
  public:
    // COMPONENT: of the log lines. Shows nothing below the log level info. REQUIRES: end signals
    // may go to any thread.
    explicit Progress(std::string_view component, std::string_view what, int64_t total = 0,
                      std::string_view noun = {});
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress() { end(); }

    // These are ProgressText's; any thread.
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
    bool ended_ = false;
    std::optional<LogSink> sink_;  // present until the end
    SmallThread thread_;           // started last, when all that it reads is there
};

}  // namespace dslaunch
