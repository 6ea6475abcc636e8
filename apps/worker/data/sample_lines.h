// Reads the samples of several files of training text as lines of JSON: lines of .jsonl files as
// they are, objects of a list or of several lines each, rows of Parquet files as lines that say the
// same, and a plain text (.txt, .md) in pieces of whole lines. Data path: .json, .jsonl,
// .parquet, .txt -> [here] -> lib/text. Blocks on the disk; one thread.
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

// Finds the objects of a JSON file that holds them in a list, or over several lines each. It looks
// for their brackets and does not check what is inside.
class JsonObjects {
  public:
    // Returns true if LINE, a file's first, begins a list, or an object of several lines.
    [[nodiscard]] static bool are_begun_by(std::string_view line);

    // BEGIN is the line of the file that has been read from IN, which must outlive this.
    JsonObjects(std::istream& in, std::string begin);

    // Makes TEXT the next object or other value, cut after BYTES_MAX. Returns false at the end.
    // Throws Error{kInput} if the file ends within its list, or goes on after it.
    [[nodiscard]] bool next(std::string& text, size_t bytes_max);

  private:
    [[nodiscard]] int byte();
    [[nodiscard]] int sign();
    void require_end();

    std::istream& in_;
    std::string begin_;
    size_t at_ = 0;  // in begin_
    bool list_ = false;
    int held_ = -1;  // a byte that was read too early; -1: there is none
};

struct SampleLine {
    std::string text;
    std::string reason;  // why a row of a table has none; else empty
    size_t file = 0;     // one of the files
    int64_t number = 0;  // line, object or row of it, from 1
};

class SampleLines {
  public:
    // FILES must outlive the reader; "-" is stdin.
    explicit SampleLines(const std::vector<std::string>& files) : files_(files) {}

    // Returns some more lines; empty at the end. Throws Error{kInput} that names a file that cannot
    // be read, is not JSON (CSV, UTF-16, compressed), or ends within its list; and what
    // storage::open_table() throws.
    [[nodiscard]] std::vector<SampleLine> next();
    // Returns the bytes of the lines so far.
    [[nodiscard]] int64_t bytes() const { return bytes_; }
    // Returns true once a file had more than blank lines.
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
    size_t file_ = 0;  // how many are opened
    std::ifstream opened_;
    std::istream* in_ = nullptr;                // null: the file is a table, or none is open
    std::unique_ptr<storage::TableRows> rows_;  // null: it has lines, or none is open
    std::optional<JsonObjects> objects_;        // unset: the file has a sample in each line
    std::optional<std::string> piece_;          // of a plain text; unset: the file is none
    bool begun_ = false;                        // a line of the file was not blank
    int64_t number_ = 0;
    int64_t bytes_ = 0;
    bool has_text_ = false;
};

}  // namespace dslaunch::worker
