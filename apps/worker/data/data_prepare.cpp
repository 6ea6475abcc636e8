#include "worker/data/data_prepare.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "kernels/thread_team.h"
#include "storage/files/safetensors.h"
#include "storage/huggingface/generation_config.h"
#include "storage/huggingface/model_folder.h"
#include "tokens/chat/chat_line.h"
#include "tokens/rows/encode_sample.h"
#include "worker/processors.h"

namespace dslaunch::worker {

namespace {

constexpr size_t kLinesOfBlock = 512;
constexpr size_t kBytesOfBlock = size_t{8} << 20;
constexpr int64_t kBadLinesShown = 10;
constexpr std::chrono::seconds kTellInterval{5};

// Rows on the disk until their number is known, which the header of a .safetensors file has.
class RowSpool {
  public:
    RowSpool(const std::string& beside, bool with_documents) {
        if (with_documents) columns_.push_back({"documents", &tokens::TokenRow::documents});
        std::string path = beside + ".rows-XXXXXX";
        file_ = UniqueFd(::mkostemp(path.data(), O_CLOEXEC));
        if (!file_.valid())
            fail(ExitCode::kDisk, "{}: cannot be made: {}", printable(path), errno_text(errno));
        ::unlink(path.c_str());
        path_ = path;
    }

    void add(const tokens::TokenRow& row) {
        for (const Column& column : columns_) {
            const std::vector<int32_t>& numbers = row.*column.of_row;
            buffer_.append(reinterpret_cast<const char*>(numbers.data()),
                           numbers.size() * sizeof(int32_t));
        }
        ++rows_;
        if (buffer_.size() > kBytesOfBlock) flush();
    }

    // Writes all rows as the columns of PATH.
    void write(const std::string& path, int64_t length) {
        flush();
        std::vector<storage::SafetensorsEntry> entries;
        for (const Column& column : columns_)
            entries.push_back({column.name, DType::kI32, {rows_, length}, {}});
        storage::SafetensorsWriter writer(path, entries);
        const auto row_bytes = static_cast<size_t>(length) * sizeof(int32_t);
        for (size_t column = 0; column < entries.size(); ++column)
            for (int64_t row = 0; row < rows_; ++row) {
                std::vector<std::byte> bytes(row_bytes);
                const auto at = static_cast<off_t>(
                    (static_cast<size_t>(row) * entries.size() + column) * row_bytes);
                if (::pread(file_.get(), bytes.data(), row_bytes, at) !=
                    static_cast<ssize_t>(row_bytes))
                    fail(ExitCode::kDisk, "{}: cannot be read again: {}", printable(path_),
                         errno_text(errno));
                writer.append(column, bytes);
            }
        writer.commit();
    }

  private:
    void flush() {
        const std::string_view bytes = buffer_;
        for (size_t done = 0; done < bytes.size();) {
            const ssize_t written = ::write(file_.get(), bytes.data() + done, bytes.size() - done);
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0)
                fail(ExitCode::kDisk, "{}: cannot be written: {}", printable(path_),
                     errno_text(errno));
            done += static_cast<size_t>(written);
        }
        buffer_.clear();
    }

    struct Column {
        const char* name;
        std::vector<int32_t> tokens::TokenRow::*of_row;
    };
    std::vector<Column> columns_ = {{"tokens", &tokens::TokenRow::tokens},
                                    {"targets", &tokens::TokenRow::targets}};
    UniqueFd file_;
    std::string path_;
    std::string buffer_;
    int64_t rows_ = 0;
};

// The lines of several files, numbered in each.
class LineReader {
  public:
    struct Line {
        std::string text;
        size_t file = 0;
        int64_t number = 0;
    };

    explicit LineReader(const std::vector<std::string>& files) : files_(files) {}

    // Some lines more; none: that was all.
    std::vector<Line> next() {
        std::vector<Line> lines;
        size_t bytes = 0;
        for (std::string text; lines.size() < kLinesOfBlock && bytes < kBytesOfBlock;) {
            if (!is_open_ && !open_next()) break;
            if (!std::getline(*in_, text)) {
                if (in_->bad())
                    fail(ExitCode::kInput, "{}: cannot be read: {}", printable(files_[file_ - 1]),
                         errno_text(errno));
                is_open_ = false;
                continue;
            }
            ++number_;
            bytes += text.size() + 1;
            if (text.find_first_not_of(" \t\r") != std::string::npos)
                lines.push_back({std::move(text), file_ - 1, number_});
        }
        bytes_ += static_cast<int64_t>(bytes);
        return lines;
    }
    [[nodiscard]] int64_t bytes() const { return bytes_; }

  private:
    bool open_next() {
        if (file_ == files_.size()) return false;
        const std::string& path = files_[file_++];
        number_ = 0;
        in_ = &std::cin;
        if (path != "-") {
            opened_ = std::ifstream(path);
            in_ = &opened_;
            if (!opened_)
                fail(ExitCode::kInput, "{}: cannot be read: {}", printable(path),
                     errno_text(errno));
        }
        is_open_ = true;
        return true;
    }

    const std::vector<std::string>& files_;
    size_t file_ = 0;
    std::ifstream opened_;
    std::istream* in_ = nullptr;
    bool is_open_ = false;
    int64_t number_ = 0;
    int64_t bytes_ = 0;
};

class Preparation {
  public:
    explicit Preparation(const PrepareArguments& arguments)
        : arguments_(arguments),
          tokenizer_(tokens::Tokenizer::load(arguments.model + "/tokenizer.json")),
          chat_(tokens::ChatTemplates::read(arguments.model)),
          team_(arguments.threads > 0 ? static_cast<int>(arguments.threads) : processors_allowed()),
          lines_(arguments.files),
          spool_(arguments.out, arguments.rows.packs && arguments.keeps_apart),
          packer_(rules_of(arguments), [this](const tokens::TokenRow& row) { spool_.add(row); }) {
        rules_.tokenizer = &tokenizer_;
        rules_.chat = chat_ ? &*chat_ : nullptr;
        rules_.learns_all = arguments.learns_all;
        const std::vector<int32_t> ends = end_tokens(arguments);
        if (arguments.ends_texts && !ends.empty()) rules_.end_token = ends.front();
    }

    void run() {
        for (std::vector<LineReader::Line> block = lines_.next(); !block.empty();
             block = lines_.next()) {
            std::vector<Encoded> encoded(block.size());
            team_.for_chunks(std::ssize(block), [&](int64_t i) {
                encoded[static_cast<size_t>(i)] = encode(block[static_cast<size_t>(i)].text);
            });
            for (size_t i = 0; i < block.size(); ++i) take(block[i], encoded[i]);
            tell();
        }
        packer_.finish();
        if (packer_.counts().rows == 0)
            fail(ExitCode::kInput, "{}: no line gave a row ({} bad ones{})",
                 printable(arguments_.files.front()), bad_lines_,
                 packer_.counts().unlearned_rows > 0 ? "; nothing in the others is to be learned"
                                                     : "");
        spool_.write(arguments_.out, arguments_.rows.length);
        finish();
    }

  private:
    struct Encoded {
        tokens::EncodedSample sample;
        const char* format = "";
    };

    static std::vector<int32_t> end_tokens(const PrepareArguments& arguments) {
        if (!storage::model_folder_of(arguments.model)) return {};
        return storage::end_tokens_of(arguments.model);
    }
    static tokens::PackRules rules_of(const PrepareArguments& arguments) {
        tokens::PackRules rules = arguments.rows;
        const std::vector<int32_t> ends = end_tokens(arguments);
        if (!ends.empty()) rules.padding = ends.front();
        return rules;
    }

    Encoded encode(const std::string& line) const {
        const tokens::ChatLine parsed = tokens::parse_chat_line(line);
        if (!parsed.sample) return {{{}, parsed.reason}, ""};
        if (parsed.sample->format == tokens::ChatFormat::kPreference)
            return {{{}, "is a preference of two answers, which this command does not prepare"},
                    ""};
        return {tokens::encode_sample(*parsed.sample, rules_),
                tokens::chat_format_name(parsed.sample->format)};
    }

    void take(const LineReader::Line& line, const Encoded& encoded) {
        if (!encoded.sample.reason.empty()) return refuse(line, encoded.sample.reason);
        ++formats_[encoded.format];
        packer_.add(encoded.sample.document);
    }

    void refuse(const LineReader::Line& line, const std::string& reason) {
        const std::string where =
            fmt::format("{}:{}", printable(arguments_.files[line.file]), line.number);
        if (++bad_lines_ > arguments_.bad_lines_max)
            fail(ExitCode::kInput,
                 "{}: {}; with it more than {} lines are bad (--max-bad-lines allows more)", where,
                 printable(reason), arguments_.bad_lines_max);
        if (bad_lines_ <= kBadLinesShown) log_warn("data", "{}: left out: {}", where, reason);
    }

    [[nodiscard]] double megabytes_a_second() const {
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
        return static_cast<double>(lines_.bytes()) / 1e6 / std::max(seconds.count(), 1e-9);
    }

    void tell() {
        const auto now = std::chrono::steady_clock::now();
        if (now - told_ < kTellInterval) return;
        told_ = now;
        log_info("data", "documents={} tokens={} rows={} bad_lines={} {:.1f} MB/s",
                 packer_.counts().documents, packer_.counts().tokens, packer_.counts().rows,
                 bad_lines_, megabytes_a_second());
    }

    void finish() const {
        const tokens::PackCounts& counts = packer_.counts();
        const int64_t places = counts.rows * arguments_.rows.length;
        std::string formats;
        for (const auto& [name, lines] : formats_)
            formats += fmt::format("{}{} {}", formats.empty() ? "" : ", ", lines, name);
        log_info("data", "lines: {}; {} bad", formats, bad_lines_);
        if (counts.split + counts.cut + counts.dropped + counts.unlearned_rows > 0)
            log_info("data",
                     "longer than a row: {} split, {} cut, {} dropped; {} rows without "
                     "anything to learn left out",
                     counts.split, counts.cut, counts.dropped, counts.unlearned_rows);
        log_info("data", "{} threads, {:.1f} MB/s", team_.threads(), megabytes_a_second());
        fmt::print(
            "wrote {}: {} rows of {}, {} tokens ({:.1f} % padding), {} of them learned\n",
            printable(arguments_.out), counts.rows, arguments_.rows.length, counts.tokens,
            100.0 * static_cast<double>(places - counts.tokens) / static_cast<double>(places),
            counts.learned);
    }

    const PrepareArguments& arguments_;
    tokens::Tokenizer tokenizer_;
    std::optional<tokens::ChatTemplates> chat_;
    tokens::EncodeRules rules_;
    kernels::ThreadTeam team_;
    LineReader lines_;
    RowSpool spool_;
    tokens::RowPacker packer_;
    std::map<std::string, int64_t> formats_;
    int64_t bad_lines_ = 0;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point told_ = begin_;
};

}  // namespace

void prepare_data(const PrepareArguments& arguments) {
    Preparation(arguments).run();
}

}  // namespace dslaunch::worker
