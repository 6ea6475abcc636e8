#include "server/http/request_reader.h"

#include <algorithm>

#include "base/check.h"

namespace dslaunch::server {

namespace {

// A head up to this length is not charged to the budget, so that /health is answered even if
// bodies have used it up.
constexpr size_t kFreeHeadBytes = 2048;
constexpr int kChunkDigitsMax = 8;

constexpr HttpRefusal kBadEnd{400, "a header line does not end with carriage return and line feed"};
constexpr HttpRefusal kControl{400, "the header contains a control character"};
constexpr HttpRefusal kNothing{400, "the request begins with an empty line"};
constexpr HttpRefusal kLongHead{431, "the header is too long"};
constexpr HttpRefusal kLongBody{413, "the body is too large"};
constexpr HttpRefusal kBadChunk{400, "a chunk of the body is malformed"};
constexpr HttpRefusal kFull{
    503, "other requests use all the memory that requests may use: try again later"};

}  // namespace

RequestReader::RequestReader(const RequestLimits& limits, RequestBudget& budget)
    : limits_(limits), lease_(budget) {
    head_text_.reserve(kFreeHeadBytes);
}

void RequestReader::refuse(const HttpRefusal& refusal) {
    state_ = State::kRefused;
    refusal_ = refusal;
}

void RequestReader::reset() {
    // Frees the memory of a long request, since shrink_to() gives its bytes back to the budget.
    body_ = {};
    if (head_text_.capacity() > kFreeHeadBytes) {
        head_text_ = {};
        head_text_.reserve(kFreeHeadBytes);
    }
    head_text_.clear();
    lease_.shrink_to(0);
    last_ = '\0';
    line_is_empty_ = true;
    state_ = State::kHead;
}

int64_t RequestReader::growth(size_t numel) const {
    if (state_ != State::kBody) return 0;
    return growth_of(body_, std::min(body_.size() + numel, body_max()), body_max());
}

size_t RequestReader::take(std::string_view bytes) {
    switch (state_) {
        case State::kHead:
            return take_head(bytes);
        case State::kBody:
            return head_.chunked ? take_chunks(bytes) : take_length(bytes);
        default:
            return 0;
    }
}

size_t RequestReader::end_of_head(std::string_view bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) {
        const char c = bytes[i];
        const auto byte = static_cast<unsigned char>(c);
        if ((c == '\n') != (last_ == '\r')) {
            refuse(kBadEnd);
            return i;
        }
        if ((byte < 0x20 && c != '\t' && c != '\r' && c != '\n') || byte == 0x7f) {
            refuse(kControl);
            return i;
        }
        last_ = c;
        if (c == '\n') {
            if (line_is_empty_ && head_text_.size() + i < 2) refuse(kNothing);
            if (line_is_empty_) return i + 1;
            line_is_empty_ = true;
        } else if (c != '\r') {
            line_is_empty_ = false;
        }
    }
    return std::string_view::npos;
}

size_t RequestReader::take_head(std::string_view bytes) {
    bytes = bytes.substr(0, limits_.head_bytes_max + 1 - head_text_.size());
    const size_t end = end_of_head(bytes);
    if (state_ == State::kRefused) return 0;
    const std::string_view taken = bytes.substr(0, end);
    if (!reserve(head_text_, head_text_.size() + taken.size(), lease_)) {
        refuse(kFull);
        return 0;
    }
    head_text_ += taken;
    if (head_text_.size() > limits_.head_bytes_max) {
        refuse(kLongHead);
    } else if (end != bytes.npos) {
        const auto refusal = read_head(head_text_, head_);
        if (refusal) {
            refuse(*refusal);
        } else if (head_.body_bytes > limits_.body_bytes_max) {
            refuse(kLongBody);
        } else {
            state_ = State::kHeadRead;
        }
    }
    return taken.size();
}

void RequestReader::read_body() {
    DSL_CHECK(state_ == State::kHeadRead, "a body without a head");
    part_ = ChunkPart::kSize;
    chunk_bytes_ = 0;
    chunk_digits_ = 0;
    state_ = head_.has_body() ? State::kBody : State::kWhole;
}

bool RequestReader::append(std::string_view bytes) {
    if (bytes.size() > limits_.body_bytes_max - body_.size()) {
        refuse(kLongBody);
        return false;
    }
    if (!reserve(body_, body_.size() + bytes.size(), lease_, body_max())) {
        refuse(kFull);
        return false;
    }
    body_ += bytes;
    return true;
}

size_t RequestReader::take_length(std::string_view bytes) {
    bytes = bytes.substr(0, head_.body_bytes - body_.size());
    if (!append(bytes)) return 0;
    if (body_.size() == head_.body_bytes) state_ = State::kWhole;
    return bytes.size();
}

size_t RequestReader::take_chunks(std::string_view bytes) {
    size_t taken = 0;
    while (state_ == State::kBody && taken < bytes.size()) {
        if (part_ != ChunkPart::kData) {
            take_mark(bytes[taken++]);
            continue;
        }
        const std::string_view data = bytes.substr(taken, chunk_bytes_);
        if (!append(data)) break;
        taken += data.size();
        chunk_bytes_ -= data.size();
        if (chunk_bytes_ == 0) part_ = ChunkPart::kDataEnd;
    }
    return taken;
}

void RequestReader::take_size_digit(char c) {
    const char low = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool is_number = low >= '0' && low <= '9';
    if ((!is_number && !(low >= 'a' && low <= 'f')) || ++chunk_digits_ > kChunkDigitsMax)
        return refuse(kBadChunk);
    chunk_bytes_ =
        chunk_bytes_ * 16 + static_cast<uint64_t>(is_number ? low - '0' : low - 'a' + 10);
}

// Reads C, a byte between the data of chunks. Refuses chunk extensions and fields after the last
// chunk: no client needs them, and programs interpret them in different ways.
void RequestReader::take_mark(char c) {
    const auto expect = [&](char wanted, ChunkPart next) {
        if (c != wanted) return refuse(kBadChunk);
        part_ = next;
    };
    switch (part_) {
        case ChunkPart::kSize:
            if (c == '\r' && chunk_digits_ > 0) {
                part_ = ChunkPart::kSizeEnd;
                break;
            }
            return take_size_digit(c);
        case ChunkPart::kSizeEnd:
            if (chunk_bytes_ > limits_.body_bytes_max - body_.size()) return refuse(kLongBody);
            return expect('\n', chunk_bytes_ > 0 ? ChunkPart::kData : ChunkPart::kLastEnd);
        case ChunkPart::kDataEnd:
            return expect('\r', ChunkPart::kDataLineEnd);
        case ChunkPart::kDataLineEnd:
            chunk_digits_ = 0;
            return expect('\n', ChunkPart::kSize);
        case ChunkPart::kLastEnd:
            return expect('\r', ChunkPart::kLastLineEnd);
        case ChunkPart::kLastLineEnd:
            expect('\n', part_);
            if (state_ == State::kBody) state_ = State::kWhole;
            break;
        case ChunkPart::kData:
            break;
    }
}

}  // namespace dslaunch::server
