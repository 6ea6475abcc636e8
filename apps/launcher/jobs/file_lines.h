// Reads lines of files that other processes write: the beginning and the end of a file that may be
// large, and the new lines of a growing file. Data path: logs, metrics and records of jobs ->
// [here] -> logs, top, report. One thread for each object; nothing blocks but the disk.
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
    bool keeps_partial = true;  // true: a last line without a newline is read too
};

// Returns the lines in the first and in the last bytes of the file at PATH; ENDS gives the lengths
// of both parts. If the file is longer than both parts, incomplete lines are left out. Returns
// nullopt if the file cannot be opened. If a read fails, the text ends there.
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
