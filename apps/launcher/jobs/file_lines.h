// Lines of files that other processes write: the beginning and the end of one that may be large,
// and one that grows. Data path: logs, metrics and records of jobs -> [here] -> logs, top, report.
// One thread for each object; nothing blocks but the disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.h"
#include "launch/process/line_splitter.h"

namespace dslaunch::launcher {

// The parts of a file that read_file_ends() reads.
struct FileEnds {
    int64_t first_bytes = 0;
    int64_t last_bytes = 0;
    bool keeps_partial = true;  // also the last line if it has no newline
};

// Returns the lines in the first and last bytes of the file at PATH, as ENDS says. If the file is
// longer than both parts, lines that the parts hold incompletely are left out. nullopt: the file
// cannot be opened. A read that fails ends the text there.
[[nodiscard]] std::optional<std::string> read_file_ends(const std::string& path,
                                                        const FileEnds& ends);

// A file that grows, and that may be replaced by a new file of the same name.
class GrowingFile {
  public:
    explicit GrowingFile(std::string path) : path_(std::move(path)) {}

    // Returns the whole lines that were added since the last call. With END, also returns a last
    // line without a newline.
    [[nodiscard]] std::string read_new(bool end);

  private:
    [[nodiscard]] bool was_replaced() const;

    std::string path_;
    UniqueFd file_;
    launch::LineSplitter splitter_;
};

}  // namespace dslaunch::launcher
