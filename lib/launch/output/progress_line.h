// The line that says what a job does now. One thread.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "launch/plan/job_spec.h"
#include "launch/process/standard_streams.h"

namespace dslaunch::launch {

// The progress of a job. On a terminal it is the last line, which is rewritten in place. Elsewhere,
// a new line is printed whenever kToldEach has passed since the last progress line. Scripts and
// programs have no progress line, since it would disturb their own output.
class ProgressLine {
  public:
    // CLOCK: null means the system's clock. All must outlive this object.
    ProgressLine(const JobSpec& spec, StandardStreams& streams, const Clock* clock);
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;
    // Erases the line.
    ~ProgressLine() { streams_.show_moving({}); }

    // Sets the launcher's current work to WHAT, such as "reaching 4 hosts". It is shown while rank
    // 0 reports no progress. Empty: the launcher has no long work.
    void set_work(std::string_view what);
    // Shows rank 0's progress (Heartbeat::progress) instead of this launcher's work; empty: nothing
    // to show.
    void set_rank_progress(std::string_view text);
    // Takes note that a progress line was printed as a normal line.
    void note_printed() { told_at_ = clock_.now(); }
    // Shows the line in place if the terminal can move a line, and returns an empty text. Otherwise
    // returns the line that the caller must print; empty if no line is due.
    [[nodiscard]] std::string show();

  private:
    const JobSpec& spec_;
    StandardStreams& streams_;
    SystemClock system_clock_;
    const Clock& clock_;
    std::string work_;  // this launcher's current work
    TimePoint work_began_;
    std::string rank_progress_;
    std::string moving_;  // the line that was shown last; empty: no line
    TimePoint told_at_;   // the time of the newest progress line
};

}  // namespace dslaunch::launch
