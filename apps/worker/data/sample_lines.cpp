#include "worker/data/sample_lines.h"

#include <cerrno>
#include <iostream>

#include "base/error.h"
#include "base/text.h"
#include "tokens/chat/chat_line.h"

namespace dslaunch::worker {

namespace {

constexpr size_t kLinesOfBlock = 512;
constexpr int64_t kBytesOfBlock = int64_t{8} << 20;

}  // namespace

std::vector<SampleLine> SampleLines::next() {
    std::vector<SampleLine> lines;
    const int64_t before = bytes_;
    while (lines.size() < kLinesOfBlock && bytes_ - before < kBytesOfBlock) {
        if (in_ == nullptr && rows_ == nullptr && !open_next()) break;
        const bool has_more = rows_ != nullptr ? add_rows(lines) : add_line(lines);
        if (has_more) continue;
        in_ = nullptr;
        rows_.reset();
    }
    return lines;
}

bool SampleLines::open_next() {
    if (file_ == files_.size()) return false;
    ++file_;
    number_ = 0;
    if (path() == "-") {
        in_ = &std::cin;
        return true;
    }
    opened_ = std::ifstream(path());
    if (!opened_)
        fail(ExitCode::kInput, "{}: cannot be read: {}", printable(path()), errno_text(errno));
    if (storage::is_parquet(path())) {
        rows_ = storage::open_table(path(), tokens::kChatKeys);
    } else {
        in_ = &opened_;
    }
    return true;
}

bool SampleLines::add_line(std::vector<SampleLine>& lines) {
    std::string text;
    if (!std::getline(*in_, text)) {
        if (in_->bad())
            fail(ExitCode::kInput, "{}: cannot be read: {}", printable(path()), errno_text(errno));
        return false;
    }
    if (++number_ == 1 && text.starts_with("PAR1"))
        fail(ExitCode::kInput,
             "{}: is a Parquet file, which begins at its end: give a file instead of a pipe",
             printable(path()));
    bytes_ += std::ssize(text) + 1;
    if (text.find_first_not_of(" \t\r") != std::string::npos)
        lines.push_back({std::move(text), "", file_ - 1, number_});
    return true;
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
