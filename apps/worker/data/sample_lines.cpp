#include "worker/data/sample_lines.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <iostream>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"
#include "text/chat/chat_line.h"
#include "text/chat/row_columns.h"

namespace dslaunch::worker {

namespace {

constexpr size_t kLinesOfBlock = 512;
constexpr int64_t kBytesOfBlock = int64_t{8} << 20;
constexpr int64_t kTextPieceBytes = int64_t{1} << 20;

struct Packing {
    std::string_view begin, name, remedy;
};
constexpr std::array<Packing, 5> kPackings = {{{"\x1f\x8b", "gzip", "gunzip -c"},
                                               {"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"},
                                               {"\xfd"
                                                "7zXZ",
                                                "xz", "xz -dc"},
                                               {"BZh", "bzip2", "bzip2 -dc"},
                                               {"PK\x03\x04", "zip", "unzip -p"}}};

// True for a file of CSV or the like, by its name or by the names of columns in LINE, its first.
bool is_table(const std::string& path, const std::string& line) {
    const std::string name = lower(path);
    if (name.ends_with(".csv") || name.ends_with(".tsv")) return true;
    if (line.find_first_of("{[") != std::string::npos) return false;
    bool has_column = false;
    size_t cells = 0;
    for (size_t begin = 0; begin <= line.size(); ++cells) {
        const size_t end = std::min(line.find_first_of(",;\t", begin), line.size());
        std::string_view cell = trim(std::string_view(line).substr(begin, end - begin));
        if (cell.size() > 1 && cell.front() == '"' && cell.back() == '"')
            cell = cell.substr(1, cell.size() - 2);
        has_column = has_column || std::ranges::count(text::row_columns(), cell) > 0;
        begin = end + 1;
    }
    return has_column && cells > 1;
}

// True for a text, by its name and by LINE, its first, which is no JSON.
bool is_plain_text(const std::string& path, const std::string& line) {
    const std::string name = lower(path);
    const bool is_named =
        name.ends_with(".txt") || name.ends_with(".text") || name.ends_with(".md");
    return is_named && !trim(line).starts_with('{');
}

}  // namespace

std::vector<SampleLine> SampleLines::next() {
    std::vector<SampleLine> lines;
    const int64_t before = bytes_;
    while (lines.size() < kLinesOfBlock && bytes_ - before < kBytesOfBlock) {
        if (in_ == nullptr && rows_ == nullptr && !open_next()) break;
        const bool has_more = rows_ != nullptr ? add_rows(lines)
                              : objects_       ? add_object(lines)
                                               : add_line(lines);
        if (has_more) continue;
        in_ = nullptr;
        objects_.reset();
        rows_.reset();
    }
    return lines;
}

bool SampleLines::open_next() {
    if (file_ == files_.size()) return false;
    ++file_;
    number_ = 0;
    has_begun_ = false;
    piece_.reset();
    if (path() == "-") {
        in_ = &std::cin;
        return true;
    }
    opened_ = std::ifstream(path());
    if (!opened_)
        fail(ExitCode::kInput, "{}: cannot be read: {}", printable(path()), errno_text(errno));
    if (storage::is_parquet(path())) {
        rows_ = storage::open_table(path(), text::row_columns());
    } else {
        in_ = &opened_;
    }
    return true;
}

// Adds a piece of a plain text: whole lines, which are one document.
bool SampleLines::add_text(std::vector<SampleLine>& lines) {
    const int64_t first = number_;
    std::string line;
    while (std::ssize(*piece_) < kTextPieceBytes && std::getline(*in_, line)) {
        ++number_;
        if (line.ends_with('\r')) line.pop_back();
        *piece_ += line;
        if (!in_->eof()) *piece_ += '\n';
    }
    if (in_->bad())
        fail(ExitCode::kInput, "{}: cannot be read: {}", printable(path()), errno_text(errno));
    if (trim(*piece_).empty()) return false;
    bytes_ += std::ssize(*piece_);
    lines.push_back({fmt::format("{{\"text\": {}}}", json_quote(*piece_)), "", file_ - 1,
                     std::max(first, int64_t{1})});
    piece_ = "";
    return true;
}

bool SampleLines::add_line(std::vector<SampleLine>& lines) {
    if (piece_) return add_text(lines);
    std::string text;
    if (!std::getline(*in_, text)) {
        if (in_->bad())
            fail(ExitCode::kInput, "{}: cannot be read: {}", printable(path()), errno_text(errno));
        return false;
    }
    ++number_;
    const bool is_blank = text.find_first_not_of(" \t\r") == std::string::npos;
    if (!has_begun_ && !is_blank) {
        has_begun_ = true;
        check_begin(text);
        if (JsonObjects::are_begun_by(text)) {
            number_ = 0;
            objects_.emplace(*in_, std::move(text));
            return true;
        }
        if (is_plain_text(path(), text)) {
            if (text.ends_with('\r')) text.pop_back();
            piece_ = in_->eof() ? text : text + "\n";
            return add_text(lines);
        }
    }
    bytes_ += std::ssize(text) + 1;
    if (!is_blank) lines.push_back({std::move(text), "", file_ - 1, number_});
    return true;
}

bool SampleLines::add_object(std::vector<SampleLine>& lines) {
    std::string text;
    try {
        if (!objects_->next(text, text::kChatLineBytesMax + 1)) return false;
    } catch (const Error& error) {
        fail(error.code(), "{}: {}", printable(path()), error.what());
    }
    bytes_ += std::ssize(text) + 1;
    lines.push_back({std::move(text), "", file_ - 1, ++number_});
    return true;
}

// Refuses a file of another kind than lines of JSON by LINE, its first that is not blank.
void SampleLines::check_begin(const std::string& line) const {
    const std::string name = printable(path());
    if (line.starts_with("PAR1"))
        fail(ExitCode::kInput,
             "{}: is a Parquet file, which begins at its end: give a file instead of a pipe", name);
    for (const auto& [begin, kind, remedy] : kPackings)
        if (line.starts_with(begin))
            fail(ExitCode::kInput,
                 "{}: is compressed ({}): unpack it into the pipe: `{} FILE | dslaunch data "
                 "prepare - …`",
                 name, kind, remedy);
    if (line.starts_with("\xff\xfe") || line.starts_with("\xfe\xff") ||
        line.substr(0, 2).find('\0') != std::string::npos)
        fail(ExitCode::kInput,
             "{}: is UTF-16, and UTF-8 is due: `iconv -f UTF-16 -t UTF-8 FILE | dslaunch data "
             "prepare - …`",
             name);
    if (is_table(path(), line))
        fail(ExitCode::kInput,
             "{}: is a table of values with commas or tabs between them, and lines of JSON are "
             "due: in Python datasets.Dataset.from_csv(\"FILE\").to_json(\"FILE.jsonl\")",
             name);
}

bool SampleLines::add_rows(std::vector<SampleLine>& lines) {
    std::vector<storage::TableRow> rows = rows_->next();
    for (storage::TableRow& row : rows) {
        bytes_ += std::ssize(row.json) + 1;
        lines.push_back({std::move(row.json), std::move(row.reason), file_ - 1, ++number_});
    }
    return !rows.empty();
}

}  // namespace dslaunch::worker
