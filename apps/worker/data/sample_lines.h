// Reads the samples in several files of training text as lines of JSON. Lines of .jsonl files are
// taken as they are. Each object of a list, or each object that spans several lines, becomes a
// line. Rows of Parquet files become lines with the same content. A plain text (.txt, .md) becomes
// pieces of whole lines. Data path: .json, .jsonl, .parquet, .txt -> [here] -> lib/text. Blocks on
// the disk; one thread.
#pragma once

#include <cstdint>
#include <fstream>
#include <istream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/tables/table_rows.h"

namespace dslaunch::worker {

// Finds the objects in a JSON file that has a list of objects, or objects that span several lines.
// The search only follows brackets, and does not check the contents.
class JsonObjects {
  public:
    // Returns true if LINE, a file's first line, begins a list, or an object of several lines.
    [[nodiscard]] static bool are_begun_by(std::string_view line);

    // BEGIN is the line that has already been read from IN. IN must outlive this object.
    JsonObjects(std::istream& in, std::string begin);

    // Reads the next object or other value into TEXT, cut to BYTES_MAX. Returns false at the end.
    // Throws Error{kInput} if the file ends within its list, or continues after it.
    [[nodiscard]] bool next(std::string& text, size_t bytes_max);

  private:
    [[nodiscard]] int byte();
    [[nodiscard]] int sign();
    void require_end();

    std::istream& in_;
    std::string begin_;
    size_t at_ = 0;  // the reading position in begin_
    bool list_ = false;
    int held_ = -1;  // a byte that was read too early; -1: there is none
};

// A sample as a line of JSON, and the place that it was read from.
struct SampleLine {
    std::string text;
    std::string reason;  // why a table's row has no text; else empty
    size_t file = 0;     // index of the file
    int64_t number = 0;  // number of the line, object or row, from 1
};

// Reads the files one after the other, block by block.
class SampleLines {
  public:
    // FILES must outlive the reader; "-" is stdin.
    explicit SampleLines(const std::vector<std::string>& files) : files_(files) {}

    // Returns some more lines; empty at the end. Throws Error{kInput}, naming the file, for a file
    // that cannot be read, is not JSON (CSV, UTF-16, compressed), or ends within its list. Also
    // throws what storage::open_table() throws.
    [[nodiscard]] std::vector<SampleLine> next();
    // Returns the size in bytes of the lines so far.
    [[nodiscard]] int64_t bytes() const { return bytes_; }
    // Returns true after a line that is not blank has been read from any file.
    [[nodiscard]] bool has_text() const { return has_text_; }

  private:
    [[nodiscard]] bool open_next();
    [[nodiscard]] bool add_line(std::vector<SampleLine>& lines);
    [[nodiscard]] bool add_text(std::vector<SampleLine>& lines);
    [[nodiscard]] bool add_rows(std::vector<SampleLine>& lines);
    [[nodiscard]] bool add_object(std::vector<SampleLine>& lines);
    void check_begin(const std::string& line) const;
    [[nodiscard]] const std::string& path() const { return files_[file_ - 1]; }

    const std::vector<std::string>& files_;
    size_t file_ = 0;  // number of files opened so far
    std::ifstream opened_;
    std::istream* in_ = nullptr;                // null: the file is a table, or none is open
    std::unique_ptr<storage::TableRows> rows_;  // null: the file has lines, or none is open
    std::optional<JsonObjects> objects_;        // unset: each line of the file is a sample
    std::optional<std::string> piece_;          // piece of a plain text; unset: not a plain text
    bool begun_ = false;                        // a line that is not blank was read
    int64_t number_ = 0;
    int64_t bytes_ = 0;
    bool has_text_ = false;
};

}  // namespace dslaunch::worker
