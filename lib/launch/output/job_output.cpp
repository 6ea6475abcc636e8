#include "launch/output/job_output.h"

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/screen.h"
#include "base/terminal/moving_line.h"
#include "base/text.h"

namespace dslaunch::launch {

JobOutput::JobOutput(const JobSpec& spec, StandardStreams& streams, JobFiles& files,
                     JobRecord* record, const Clock* clock)
    : spec_(spec),
      files_(files),
      record_(record),
      printer_(streams),
      ranks_(spec, printer_, files, record),
      run_file_(spec),
      progress_(spec, streams, clock) {
    files_.open_ranks(spec.world_size);
}

void JobOutput::mark_logs(std::string_view line) {
    files_.mark_logs(line);
}

void JobOutput::detail(std::string_view line) {
    mark_logs(line);
    if (spec_.log.shows_details()) return note(line);
    if (record_ != nullptr) record_->note(line);
}

void JobOutput::note(std::string_view line) {
    if (record_ != nullptr) record_->note(line);
    printer_.note(line);
}

void JobOutput::write_run_file(int exit_code) {
    if (!spec_.output_directory.empty()) files_.run_file(run_file_.text(exit_code));
}

void JobOutput::print_environments() {
    std::string text = describe_environments(run_file_.environments());
    text.pop_back();
    note(text);
}

void JobOutput::metrics(std::string_view line) {
    const MetricsRecord record = read_metrics(line);
    newest_step_ = record.step.value_or(newest_step_);
    files_.metrics(record);
    if (record_ != nullptr) record_->metrics(line);
    if (tap_) tap_(line);
}

void JobOutput::progress(std::string_view line) {
    if (spec_.log.quiet) return;
    progress_.note_printed();
    // A terminal whose output is stopped does not need every progress line.
    if (printer_.is_terminal(2) && streams().has_kept()) return;
    const size_t columns = printer_.is_terminal(2) ? terminal_columns(2) : 0;
    note(columns > 0 ? without_last_fields(printable(line), columns) : printable(line));
}

void JobOutput::begin_work(std::string_view what) {
    progress_.set_work(what);
    tell_progress();
}

void JobOutput::tell_progress() {
    if (const std::string line = progress_.show(); !line.empty()) note(line);
}

void JobOutput::tell_news() {
    for (std::string news; !(news = files_.take_news()).empty();) note(news);
    if (record_ != nullptr) record_->tell_news();
}

std::string JobOutput::lost_lines_text() const {
    if (spec_.prints_results()) return "";
    for (const int fd : {1, 2}) {
        const int fault = printer_.streams().fault(fd);
        // Nobody expects lines on a terminal that is gone or a descriptor that is closed.
        if (fault == 0 || fault == EIO || fault == EBADF) continue;
        return fmt::format("lines of this job could not be written to {}: {}",
                           fd == 1 ? "stdout" : "stderr", errno_text(fault));
    }
    return "";
}

bool JobOutput::is_lost() {
    if (const std::string lost = has_told_of_fault_ ? "" : lost_lines_text(); !lost.empty()) {
        has_told_of_fault_ = true;
        note(fmt::format("dslaunch: warning: {}; the job continues", lost));
    }
    if (!streams().reader_is_gone(1)) return false;
    if (spec_.prints_results()) return true;
    if (!std::exchange(has_told_of_loss_, true)) {
        note(
            "dslaunch: nobody reads this output any more; the job continues, but the output of "
            "rank 0 is not shown");
    }
    return false;
}

}  // namespace dslaunch::launch
