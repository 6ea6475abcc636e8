#include "decoder/codec/written_text.h"

#include <algorithm>
#include <utility>

namespace dslaunch::decoder {

namespace {

// Returns the length of the longest suffix of TEXT that is a prefix of STOP.
size_t begun(std::string_view text, std::string_view stop) {
    for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length)
        if (text.ends_with(stop.substr(0, length))) return length;
    return 0;
}

}  // namespace

std::string StopTexts::push(std::string_view text) {
    if (has_stopped_) return {};
    held_ += text;
    // If several stop texts occur, the text stops at the one that ends first. The result therefore
    // does not depend on how the text is divided into pieces.
    size_t begin = 0, end = std::string::npos, kept = 0;
    for (const std::string& stop : stops_) {
        kept = std::max(kept, begun(held_, stop));
        const size_t found = held_.find(stop);
        if (found == std::string::npos || found + stop.size() > end) continue;
        if (found + stop.size() == end && found > begin) continue;
        begin = found;
        end = found + stop.size();
    }
    has_stopped_ = end != std::string::npos;
    std::string certain = held_.substr(0, has_stopped_ ? begin : held_.size() - kept);
    held_.erase(0, has_stopped_ ? held_.size() : certain.size());
    return certain;
}

std::string StopTexts::finish() {
    return std::exchange(held_, {});
}

TextPiece WrittenText::push(const MadeToken& made) {
    if (made.end == TextEnd::kBroken) return {"", 0, made.end};
    if (!stream_) return {std::to_string(made.token) + " ", 1, made.end};
    TextPiece piece{"", 1, made.end};
    if (made.end != TextEnd::kStop) piece.text = stops_.push(stream_->push(made.token));
    if (made.end != TextEnd::kNone && !stops_.has_stopped()) {
        piece.text += stops_.push(stream_->finish());
        if (!stops_.has_stopped()) piece.text += stops_.finish();
    }
    if (stops_.has_stopped()) piece.end = TextEnd::kStop;
    return piece;
}

}  // namespace dslaunch::decoder
