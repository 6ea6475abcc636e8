#include "worker/data/document_spool.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "worker/data/row_spool.h"

namespace dslaunch::worker {

namespace {

constexpr size_t kBlockBytes = size_t{8} << 20;

}  // namespace

DocumentSpool::DocumentSpool(const std::string& beside)
    : file_(open_spool(beside)), path_(beside) {}

// A document is its length, its tokens, and a byte for each that says whether it is learned.
void DocumentSpool::add(const text::TokenDocument& document) {
    const auto length = std::ssize(document.tokens);
    buffer_.append(reinterpret_cast<const char*>(&length), sizeof length);
    buffer_.append(reinterpret_cast<const char*>(document.tokens.data()),
                   document.tokens.size() * sizeof(int32_t));
    for (const bool learned : document.is_learned) buffer_ += learned ? '\1' : '\0';
    longest_ = std::max(longest_, static_cast<int64_t>(length));
    ++added_;
    if (buffer_.size() > kBlockBytes) flush();
}

void DocumentSpool::flush() {
    write_spool(file_.get(), buffer_, path_);
    buffer_.clear();
}

void DocumentSpool::begin_reading() {
    flush();
    if (::lseek(file_.get(), 0, SEEK_SET) != 0)
        fail(ExitCode::kDisk, "{}: documents beside it cannot be read again: {}", printable(path_),
             errno_text(errno));
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
                fail(ExitCode::kDisk, "{}: documents beside it cannot be read again: {}",
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

}  // namespace dslaunch::worker
