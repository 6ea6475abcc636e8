#include "worker/data/row_maker.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "storage/files/safetensors.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::worker {

namespace {

constexpr size_t kBlockBytes = size_t{8} << 20;
// The default of max_length in TRL. Rows are padded to this length, and training memory grows with
// it.
constexpr int64_t kLengthMax = 1024;
constexpr int64_t kLengthStep = 16;

// Returns the context length and vocabulary size of the model in FOLDER, which limit the rows.
ModelLimits limits_of(const std::string& folder) {
    if (!storage::model_folder_of(folder)) return {};
    try {
        const auto config = storage::open_model_folder(folder).config;
        return {config.context, config.vocabulary};
    } catch (const Error&) {
        return {};  // the tokenizer may be known although the model is not
    }
}

}  // namespace

DocumentSpool::DocumentSpool(const std::string& beside) : path_(beside) {
    std::string path = beside + ".rows-XXXXXX";
    file_ = UniqueFd(::mkostemp(path.data(), O_CLOEXEC));
    if (!file_.valid())
        fail(ExitCode::kDisk, "{}: cannot be created: {}", printable(path), errno_text(errno));
    ::unlink(path.c_str());
}

// Writes a document: its length, its tokens, and for each token a byte that says whether it is
// learned.
void DocumentSpool::add(const text::TokenDocument& document) {
    const auto length = std::ssize(document.tokens);
    buffer_.append(reinterpret_cast<const char*>(&length), sizeof length);
    buffer_.append(reinterpret_cast<const char*>(document.tokens.data()),
                   document.tokens.size() * sizeof(int32_t));
    for (const bool learned : document.is_learned) buffer_ += learned ? '\1' : '\0';
    longest_ = std::max(longest_, static_cast<int64_t>(length));
    ++added_;
    if (buffer_.size() > kBlockBytes) write_buffer();
}

void DocumentSpool::write_buffer() {
    for (size_t done = 0; done < buffer_.size();) {
        const ssize_t written = ::write(file_.get(), buffer_.data() + done, buffer_.size() - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            fail(ExitCode::kDisk,
                 "{}: cannot write the temporary file for these rows (in the same folder): {}",
                 printable(path_), errno_text(errno));
        done += static_cast<size_t>(written);
    }
    buffer_.clear();
}

void DocumentSpool::begin_reading() {
    if (!std::exchange(reading_, true)) write_buffer();
    buffer_.clear();
    at_ = 0;
    taken_ = 0;
    if (::lseek(file_.get(), 0, SEEK_SET) != 0)
        fail(ExitCode::kDisk,
             "{}: cannot read back the temporary file for these rows (in the same folder): {}",
             printable(path_), errno_text(errno));
}

void DocumentSpool::read(void* into, size_t bytes) {
    auto* to = static_cast<char*>(into);
    while (bytes > 0) {
        if (at_ == buffer_.size()) {
            buffer_.resize(kBlockBytes);
            at_ = 0;
            const ssize_t got = ::read(file_.get(), buffer_.data(), buffer_.size());
            if (got < 0 && errno == EINTR) {
                buffer_.clear();
                continue;
            }
            if (got <= 0)
                fail(ExitCode::kDisk,
                     "{}: cannot read back the temporary file for these rows (in the same folder): "
                     "{}",
                     printable(path_), got < 0 ? errno_text(errno) : "the file ends too early");
            buffer_.resize(static_cast<size_t>(got));
        }
        const size_t part = std::min(bytes, buffer_.size() - at_);
        std::memcpy(to, buffer_.data() + at_, part);
        to += part;
        at_ += part;
        bytes -= part;
    }
}

bool DocumentSpool::next(text::TokenDocument& document) {
    if (taken_ == added_) return false;
    ++taken_;
    std::ptrdiff_t length = 0;
    read(&length, sizeof length);
    document.tokens.resize(static_cast<size_t>(length));
    read(document.tokens.data(), document.tokens.size() * sizeof(int32_t));
    std::string learned(static_cast<size_t>(length), '\0');
    read(learned.data(), learned.size());
    document.is_learned.assign(learned.begin(), learned.end());
    return true;
}

RowMaker::RowMaker(RowMakerRules rules)
    : rules_(std::move(rules)), limits_(limits_of(rules_.model)), documents_(rules_.out) {
    if (limits_.positions > 0 && rules_.rows.length > limits_.positions)
        log_warn(
            "data",
            "--context {}: the model has only {} positions, so rows are longer than it supports",
            rules_.rows.length, limits_.positions);
}

void RowMaker::add(const text::TokenDocument& document) {
    documents_.add(document);
    const int32_t largest = std::ranges::max(document.tokens);
    if (limits_.vocabulary == 0 || largest < limits_.vocabulary) return;
    ++unknown_.documents;
    unknown_.token = std::max(unknown_.token, largest);
}

void RowMaker::add_pair(const text::TokenDocument& chosen, const text::TokenDocument& rejected) {
    of_pairs_ = true;
    add(chosen);
    add(rejected);
}

// Returns the length of a row for a document of TOKENS tokens. The length is at most the number of
// positions of the model.
int64_t RowMaker::holding(int64_t tokens) const {
    const int64_t length = (tokens + kLengthStep - 1) / kLengthStep * kLengthStep;
    return limits_.positions > 0 ? std::min(length, std::max<int64_t>(limits_.positions, 2))
                                 : length;
}

void RowMaker::choose_length() {
    const int64_t longest = documents_.longest();
    const int64_t length = std::min(holding(std::max<int64_t>(longest, 2)), kLengthMax);
    rules_.rows.length = length;
    if (longest > 0)
        log_info(
            "data",
            "rows of {} tokens: the longest document has {}{} (--context N sets another length)",
            length, longest,
            longest <= length      ? ""
            : length == kLengthMax ? fmt::format(", but at most {} are chosen", kLengthMax)
                                   : ", but the model has no more positions");
}

// Calls USE with each row that is made from the added documents.
void RowMaker::make_rows(const text::RowPacker::Use& use) {
    text::RowPacker packer(rules_.rows, use);
    text::PairMaker pairs({length(), rules_.drops_pairs, rules_.rows.padding},
                          [&](const text::TokenRow& chosen, const text::TokenRow& rejected) {
                              use(chosen);
                              use(rejected);
                          });
    documents_.begin_reading();
    text::TokenDocument first, second;
    while (documents_.next(first)) {
        if (!of_pairs_) {
            packer.add(first);
        } else if (documents_.next(second)) {
            pairs.add(first, second);
        }
    }
    packer.finish();
    rows_ = packer.counts();
    pairs_ = pairs.counts();
}

void RowMaker::finish() {
    if (length() == 0) choose_length();
    make_rows([](const text::TokenRow& /*row*/) {});
}

void RowMaker::write(const std::map<std::string, std::string>& metadata) {
    std::vector<int64_t> shape = {rows_.rows, length()};
    if (of_pairs_) shape = {pairs_.pairs, 2, length()};
    std::vector<storage::SafetensorsEntry> entries;
    for (const char* column : {"tokens", "targets", "documents"})
        entries.push_back({column, DType::kI32, shape, {}});
    if (!rules_.numbers) entries.pop_back();
    storage::SafetensorsWriter writer(rules_.out, entries, metadata);
    make_rows([&](const text::TokenRow& row) {
        writer.append(0, std::as_bytes(std::span(row.tokens)));
        writer.append(1, std::as_bytes(std::span(row.targets)));
        if (rules_.numbers) writer.append(2, std::as_bytes(std::span(row.documents)));
    });
    writer.commit();
}

void RowMaker::tell_long(bool text_alone) const {
    const text::PackCounts& rows = rows_;
    const text::PairCounts& pairs = pairs_;
    if (rows.split + rows.cut + rows.dropped + rows.unlearned_rows > 0)
        log_info("data",
                 "documents longer than a row: {} split, {} cut, {} dropped; {} rows left out "
                 "because they contain nothing to learn",
                 rows.split, rows.cut, rows.dropped, rows.unlearned_rows);
    if (pairs.cut + pairs.dropped + pairs.unanswered > 0)
        log_info("data",
                 "pairs longer than a row: {} cut, {} dropped; {} left out because no token of an "
                 "answer would fit in a row",
                 pairs.cut, pairs.dropped, pairs.unanswered);
    const int64_t longer = rows.split + rows.cut + rows.dropped + pairs.too_long;
    if (longer == 0 || (text_alone && rows.cut + rows.dropped == 0)) return;
    const int64_t longest = std::max(rows.longest, pairs.longest), whole = holding(longest);
    const char* verb = rows.split > 0                     ? "splits"
                       : rows.dropped + pairs.dropped > 0 ? "leaves out"
                                                          : "cuts";
    log_warn("data", "{} of {} {} longer than --context {}; the longest has {} tokens: {}", longer,
             counted(of_pairs_ ? pairs.added : rows.documents, of_pairs_ ? "pair" : "document"),
             longer == 1 ? "is" : "are", length(), longest,
             whole >= longest
                 ? fmt::format("--context {} {} none", whole, verb)
                 : fmt::format("the model has {0} positions, so use at most --context {0}",
                               limits_.positions));
}

void RowMaker::tell_unknown_tokens() const {
    if (unknown_.documents == 0) return;
    log_warn("data",
             "the model does not have all tokens of {}, so training will refuse rows with these "
             "tokens: tokenizer.json has the token {}, but vocab_size in config.json is {}. Use "
             "the tokenizer that the model was published with, or a model with more embeddings",
             counted(unknown_.documents, of_pairs_ ? "answer" : "document"), unknown_.token,
             limits_.vocabulary);
}

}  // namespace dslaunch::worker
