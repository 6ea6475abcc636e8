// Shows the lines that the ranks of an attempt write, writes them to the log files, and records
// them. One thread.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "launch/jobs/job_record.h"
#include "launch/output/job_files.h"
#include "launch/output/line_printer.h"
#include "launch/plan/job_spec.h"
#include "launch/process/line_splitter.h"
#include "launch/protocol/messages.h"

namespace dslaunch::launch {

// Passes on the lines of every rank, and keeps each rank's last lines for the report of a failure.
class RankLines {
  public:
    // RECORD may be null. All must outlive this object.
    RankLines(const JobSpec& spec, LinePrinter& printer, JobFiles& files, JobRecord* record);

    // Takes LINES of one rank: whole lines and, from a program or from rank 0's stdout, also the
    // beginning of an incomplete last line. If a program writes a carriage return and then more
    // text, this text replaces that beginning.
    void add(int rank, OutputStream stream, std::string_view lines);
    // Keeps MESSAGE, the reason that RANK gave for its failure. The report will contain it, so
    // later lines that repeat it are written to the log files only.
    void expect_failure_text(int rank, std::string_view message);
    // Returns the last lines of a rank, the oldest first.
    [[nodiscard]] const std::deque<std::string>& last_lines(int rank) const;

  private:
    struct Rank {
        std::string host;
        std::deque<std::string> last_lines;
        std::deque<std::string> told_lines;   // lines of a failure's message that are still to come
        LinePieces pieces[2];                 // of a program's stdout and stderr
        std::optional<OutputStream> in_file;  // the stream whose line is open in the log file
    };
    void program_lines(int rank, OutputStream stream, std::string_view bytes);
    void model_lines(int rank, std::string_view lines, bool is_result);
    void show_text(std::string_view bytes);
    void file_bytes(int rank, OutputStream stream, std::string_view bytes);
    void remember(Rank& from, std::string_view line);
    [[nodiscard]] std::string prefix_of(int rank) const;
    [[nodiscard]] static bool is_told(Rank& rank, std::string_view line);
    void show_line(int rank, std::string_view line, const std::optional<LoggedLine>& logged);

    const JobSpec& spec_;
    LinePrinter& printer_;
    JobFiles& files_;
    JobRecord* record_;
    std::vector<Rank> ranks_;
    LineSplitter result_lines_;  // of a model's rank 0, stdout
    std::string letter_;         // the beginning of a UTF-8 sequence that is not shown yet
};

}  // namespace dslaunch::launch
