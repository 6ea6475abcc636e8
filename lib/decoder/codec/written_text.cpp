#include "decoder/codec/written_text.h"

namespace dslaunch::decoder {

std::string WrittenText::push(const MadeToken& made) {
    if (stops_.is_stopped()) return {};
    std::string text;
    if (made.end != EndReason::kEndToken) text = stops_.push(stream_->push(made.token));
    if (made.end != EndReason::kNone && !stops_.is_stopped()) {
        text += stops_.push(stream_->finish());
        if (!stops_.is_stopped()) text += stops_.finish();
    }
    return text;
}

}  // namespace dslaunch::decoder
